// Where the base is a smart pointer, an iterator or something else with operator->, the accessor gets the raw pointer.
#include "ggml.h"
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "ggml-numa-mirror.h"

struct deleter {
    void operator()(ggml_tensor * t) const;
};

struct handle {
    ggml_tensor * p;
    ggml_tensor * operator->() const { return p; }
    ggml_tensor & operator*() const { return *p; }
};

typedef std::unique_ptr<ggml_tensor, deleter> tensor_ptr;

void f(std::unique_ptr<ggml_tensor> & u, std::shared_ptr<ggml_tensor> s, tensor_ptr & d, handle h, void * q) {
    ggml_use(tensor_data(&*u));
    ggml_use(tensor_data(&*s));
    ggml_use(tensor_data(&*d));
    ggml_use(tensor_data(d.get()));
    ggml_use(tensor_data(&*d));
    ggml_use(tensor_data(d.get()));
    ggml_use(tensor_data(&*h));
    tensor_set_data(&*d, q);
    std::vector<ggml_tensor> v(3);
    for (auto it = v.begin(); it != v.end(); ++it) {
        ggml_use(tensor_data(&*it));
        tensor_set_data(&*it, q);
    }
    std::map<std::string, ggml_tensor *> m;
    ggml_use(tensor_data(m.find("x")->second));
    std::optional<ggml_tensor> o;
    ggml_use(tensor_data(&*o));
    auto n = std::make_unique<ggml_tensor>();
    tensor_set_data(&*n, q);
    std::vector<std::unique_ptr<ggml_tensor>> w;
    for (auto & e : w) {
        ggml_use(tensor_data(&*e));
    }
}
