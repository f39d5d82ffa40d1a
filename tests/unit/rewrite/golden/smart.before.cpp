// Where the base is a smart pointer, an iterator or something else with operator->, the accessor gets the raw pointer.
#include "ggml.h"
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
    ggml_use(u->data);
    ggml_use(s->data);
    ggml_use(d->data);
    ggml_use(d.get()->data);
    ggml_use((*d).data);
    ggml_use((*d.get()).data);
    ggml_use(h->data);
    d->data = q;
    std::vector<ggml_tensor> v(3);
    for (auto it = v.begin(); it != v.end(); ++it) {
        ggml_use(it->data);
        it->data = q;
    }
    std::map<std::string, ggml_tensor *> m;
    ggml_use(m.find("x")->second->data);
    std::optional<ggml_tensor> o;
    ggml_use(o->data);
    auto n = std::make_unique<ggml_tensor>();
    n->data = q;
    std::vector<std::unique_ptr<ggml_tensor>> w;
    for (auto & e : w) {
        ggml_use(e->data);
    }
}
