// Made in the manner of what builds and runs graphs.
#include "ggml.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace graphs {

struct blob {
    std::vector<char> data;
    size_t            size() const { return data.size(); }
};

template <typename T> struct view {
    T *    data;
    size_t n;

    T & operator[](size_t i) { return data[i]; }
};

class builder {
  public:
    explicit builder(ggml_tensor * root) : root(root) {}

    void add(const std::string & name, ggml_tensor * t) {
        named[name] = t;
        order.push_back(t);
        if (t->data == nullptr && root) {
            t->data = root->data;
        }
    }

    template <typename F> void each(F && f) const {
        for (auto * t : order) {
            f(t);
        }
    }

    const void * at(const std::string & name) const {
        auto it = named.find(name);
        return it == named.end() ? nullptr : it->second->data;
    }

    ggml_tensor * operator->() const { return root; }
    ggml_tensor & operator*() const { return *root; }

    blob data;

  private:
    ggml_tensor *                        root;
    std::map<std::string, ggml_tensor *> named;
    std::vector<ggml_tensor *>           order;
};

template <typename T> static void scale(const ggml_tensor * src, ggml_tensor * dst, T by) {
    const T * x = (const T *) src->data;
    T *       y = static_cast<T *>(dst->data);
    for (long i = 0; i < src->ne[0]; ++i) {
        y[i] = x[i] * by;
    }
}

static void fill(view<float> v, const blob & from) {
    if (v.data && !from.data.empty()) {
        std::memcpy(v.data, from.data.data(), v.n);
    }
}

size_t run(builder & b, ggml_tensor * first, const std::unique_ptr<ggml_tensor> & last) {
    size_t bytes = 0;
    b.each([&](const ggml_tensor * t) {
        bytes += t->data ? ggml_size(t) : 0;
        for (const ggml_tensor * src : t->src) {
            if (src && src->data) {
                ggml_use(src->data);
            }
        }
    });
    scale<float>(first, last.get(), 2.0f);
    if (last->data != b->data) {
        fill({ (float *) last->data, 4 }, b.data);
    }
    const auto copy = *first;
    auto &     ref  = *last;
    ref.data        = copy.data;
    std::function<void *(int)> pick = [first, &ref](int i) { return i ? first->data : ref.data; };
    ggml_use(pick(1));
    return bytes + b.data.size();
}

} // namespace graphs
