// A template or auto parameter is what all uses of the template make it.
#include "ggml.h"
#include <algorithm>
#include <memory>
#include <vector>
#include "ggml-numa-mirror.h"

struct other { void * data; };

template <typename T> void * one(T * t) { return tensor_data(t); }
template <typename T> void * two(const T & t) { return tensor_data(&t); }
template <typename T> void * three(T t) { return tensor_data(t); }
template <typename T> void * four(T * t) { return t->data; }
template <typename T> struct five { T * t; void * get() { return tensor_data(t); } };
template <typename T, int N> void * six(T (&list)[N]) { return tensor_data(list[0]); }
template <typename T> void * seven(const std::vector<T> & list) { return tensor_data(list[0]); }
template <typename dst_t> void eight(const ggml_tensor * t, dst_t * out) { *out = *(dst_t *) tensor_data(t); }

void f(ggml_tensor * t, ggml_tensor & r, other * o, std::vector<ggml_tensor *> & v, std::unique_ptr<ggml_tensor> u) {
    one(t);
    one<ggml_tensor>(&r);
    two(r);
    three(t);
    three(v[0]);
    four(o);
    five<ggml_tensor> s{t};
    s.get();
    ggml_tensor * list[2] = {t, t};
    six(list);
    seven(v);
    float x;
    eight(t, &x);
    auto get = [](const auto * e) { return tensor_data(e); };
    get(t);
    get(v[0]);
    std::sort(v.begin(), v.end(), [](auto * a, const auto & b) { return tensor_data(a) < tensor_data(b); });
    [](auto e) { ggml_use(tensor_data(e)); }(t);
    auto nested = [&](auto & e) { ggml_use(three(e)); };
    nested(t);
}
