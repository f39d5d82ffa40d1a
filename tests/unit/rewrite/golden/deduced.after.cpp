// Types come from initialisers, ranges, bindings, captures and function results.
#include "ggml.h"
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
#include "ggml-numa-mirror.h"

using tensor_map = std::unordered_map<std::string, std::pair<ggml_tensor *, int>>;
typedef struct ggml_tensor * tensor_t;
typedef struct ggml_tensor tensor_s;

struct layer {
    ggml_tensor * wq = nullptr;
    std::array<ggml_tensor *, 2> kv;
    ggml_tensor * get() const { return wq; }
    auto again() const { return wq; }
    auto third() const -> const ggml_tensor * { return wq; }
    const std::vector<ggml_tensor *> & all() const;
    std::vector<ggml_tensor *> list;
    void * own() const { return tensor_data(wq); }
    void * outside() const;
};

void * layer::outside() const {
    return tensor_data(this->wq) == tensor_data(kv[1]) ? tensor_data(kv[0]) : tensor_data(list.front());
}

struct base_layer { ggml_tensor * inherited; };
struct derived_layer : public base_layer {
    void * f() { return tensor_data(inherited); }
};

static ggml_tensor * pick(const layer & l, bool b) { return b ? l.get() : l.wq; }
template <typename T> T * same(T * t) { return t; }

void f(layer & l, tensor_map & m, std::vector<layer> & layers, tensor_t t, tensor_s & s, std::tuple<int, ggml_tensor *> u) {
    auto * a = l.get();
    const auto & b = l.again();
    auto c = pick(l, true);
    ggml_use(tensor_data(a)); ggml_use(tensor_data(b)); ggml_use(tensor_data(c));
    ggml_use(tensor_data(l.third()));
    ggml_use(tensor_data(t)); ggml_use(tensor_data(&s));
    ggml_use(tensor_data(same(a)));
    ggml_use(tensor_data(same<ggml_tensor>(a)));
    for (auto * e : l.all()) { ggml_use(tensor_data(e)); }
    for (const auto & e : layers) { ggml_use(tensor_data(e.wq)); ggml_use(tensor_data(e.kv[1])); }
    for (auto & [name, entry] : m) { ggml_use(tensor_data(entry.first)); }
    for (auto & it : m) { ggml_use(tensor_data(it.second.first)); }
    for (ggml_tensor * e : {a, c}) { ggml_use(tensor_data(e)); }
    auto [x, y] = std::make_pair(a, 3);
    ggml_use(tensor_data(x));
    auto [number, tensor] = u;
    ggml_use(tensor_data(tensor));
    ggml_use(tensor_data(std::get<1>(u)));
    ggml_use(tensor_data(m["k"].first));
    ggml_use(tensor_data(m.at("k").first));
    if (auto * e = l.get()) { ggml_use(tensor_data(e)); }
    if (auto it = m.find("k"); it != m.end()) { ggml_use(tensor_data(it->second.first)); }
    auto g = [&](ggml_tensor * e, int i) { return tensor_data(e->src[i]); };
    auto h = [p = a]() { return tensor_data(p); };
    auto k = [=](int) -> ggml_tensor * { return a; };
    ggml_use(tensor_data(k(1))); ggml_use(g(a, 0)); ggml_use(h());
    std::function<ggml_tensor *(int)> fn = k;
    ggml_use(tensor_data(fn(2)));
    ggml_tensor * (*fp)(int) = ggml_get;
    ggml_use(tensor_data(fp(1))); ggml_use(tensor_data((*fp)(2)));
    ggml_use(tensor_data(std::max(a, c))); ggml_use(tensor_data(std::move(a)));
    std::sort(l.list.begin(), l.list.end(), [](const ggml_tensor * p, const ggml_tensor * q) { return tensor_data(p) < tensor_data(q); });
    ggml_tensor * arr[3] = {a, b, c};
    for (auto * e : arr) { ggml_use(tensor_data(e)); }
    ggml_use(tensor_data(static_cast<ggml_tensor *>((void *) a)));
    ggml_use(tensor_data(const_cast<ggml_tensor *>(b)));
    ggml_use(tensor_data(reinterpret_cast<const ggml_tensor *>(l.kv.data())));
    decltype(a) z = a;
    ggml_use(tensor_data(z));
    auto * fresh = new ggml_tensor;
    tensor_set_data(fresh, nullptr);
    struct ggml_tensor * & ref = l.wq;
    tensor_set_data(ref, nullptr);
    ::ggml_tensor * global = a;
    ggml_use(tensor_data(global));
}
