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
    void * own() const { return wq->data; }
    void * outside() const;
};

void * layer::outside() const {
    return this->wq->data == kv[1]->data ? kv[0]->data : list.front()->data;
}

struct base_layer { ggml_tensor * inherited; };
struct derived_layer : public base_layer {
    void * f() { return inherited->data; }
};

static ggml_tensor * pick(const layer & l, bool b) { return b ? l.get() : l.wq; }
template <typename T> T * same(T * t) { return t; }

void f(layer & l, tensor_map & m, std::vector<layer> & layers, tensor_t t, tensor_s & s, std::tuple<int, ggml_tensor *> u) {
    auto * a = l.get();
    const auto & b = l.again();
    auto c = pick(l, true);
    ggml_use(a->data); ggml_use(b->data); ggml_use(c->data);
    ggml_use(l.third()->data);
    ggml_use(t->data); ggml_use(s.data);
    ggml_use(same(a)->data);
    ggml_use(same<ggml_tensor>(a)->data);
    for (auto * e : l.all()) { ggml_use(e->data); }
    for (const auto & e : layers) { ggml_use(e.wq->data); ggml_use(e.kv[1]->data); }
    for (auto & [name, entry] : m) { ggml_use(entry.first->data); }
    for (auto & it : m) { ggml_use(it.second.first->data); }
    for (ggml_tensor * e : {a, c}) { ggml_use(e->data); }
    auto [x, y] = std::make_pair(a, 3);
    ggml_use(x->data);
    auto [number, tensor] = u;
    ggml_use(tensor->data);
    ggml_use(std::get<1>(u)->data);
    ggml_use(m["k"].first->data);
    ggml_use(m.at("k").first->data);
    if (auto * e = l.get()) { ggml_use(e->data); }
    if (auto it = m.find("k"); it != m.end()) { ggml_use(it->second.first->data); }
    auto g = [&](ggml_tensor * e, int i) { return e->src[i]->data; };
    auto h = [p = a]() { return p->data; };
    auto k = [=](int) -> ggml_tensor * { return a; };
    ggml_use(k(1)->data); ggml_use(g(a, 0)); ggml_use(h());
    std::function<ggml_tensor *(int)> fn = k;
    ggml_use(fn(2)->data);
    ggml_tensor * (*fp)(int) = ggml_get;
    ggml_use(fp(1)->data); ggml_use((*fp)(2)->data);
    ggml_use(std::max(a, c)->data); ggml_use(std::move(a)->data);
    std::sort(l.list.begin(), l.list.end(), [](const ggml_tensor * p, const ggml_tensor * q) { return p->data < q->data; });
    ggml_tensor * arr[3] = {a, b, c};
    for (auto * e : arr) { ggml_use(e->data); }
    ggml_use(static_cast<ggml_tensor *>((void *) a)->data);
    ggml_use(const_cast<ggml_tensor *>(b)->data);
    ggml_use(reinterpret_cast<const ggml_tensor *>(l.kv.data())->data);
    decltype(a) z = a;
    ggml_use(z->data);
    auto * fresh = new ggml_tensor;
    fresh->data = nullptr;
    struct ggml_tensor * & ref = l.wq;
    ref->data = nullptr;
    ::ggml_tensor * global = a;
    ggml_use(global->data);
}
