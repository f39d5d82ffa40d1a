// What needs the field itself and not its value has no rule.
#include "ggml.h"
#include <atomic>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

void by_reference(void *& p);
void by_const_reference(void * const & p);
void by_value(void * p);
template <typename T> void forwarded(T && t);
template <typename... T> void forwarding(T &&... t) { by_value(std::forward<T>(t)...); }
template <typename T> void overwriting(T && t) { t = nullptr; }
template <typename T> void open_reference(T & t);
struct keeper {
    void *& kept;
    keeper(void *& p);
    void set(void *& p);
    void set(int i);
};
#define ADDRESS(x) (&(x))
#define SET(x, v) ((x) = (v))
#define INDIRECT(x, v) SET(x, v)
#define PASTE(a) a##_suffix

void * f(ggml_tensor * a, ggml_tensor & b, keeper & k, void ** out, int n) {
    void ** p = &a->data;                         // error: address of the field
    void ** q = &(b.data);                        // error: address of the field
    void ** c = (void **) &a->src[0]->data;       // error: address of the field
    memcpy(&a->data, out, sizeof(void *));        // error: address of the field
    auto & r = a->data;                           // error: a reference is bound
    auto && s = b.data;                           // error: a reference is bound
    void *& t = a->data;                          // error: a reference is bound
    const void *& u = (const void *&) a->data;    // error: makes a reference
    static_cast<void *&>(a->data) = nullptr;      // error: makes a reference
    std::swap(a->data, b.data);                   // error: std::swap needs // error: std::swap needs
    void * old = std::exchange(a->data, nullptr); // error: std::exchange needs
    auto w = std::ref(a->data);                   // error: std::ref needs
    std::tie(a->data, n) = std::make_pair(p, 1);  // error: std::tie needs
    by_reference(a->data);                        // error: by_reference takes the field by reference
    by_const_reference(a->data);
    by_value(a->data);
    forwarded(a->data);                           // error: forwarded takes the field by reference
    forwarding(a->data);
    overwriting(a->data);                         // error: overwriting takes the field by reference
    open_reference(a->data);                      // error: open_reference takes the field by reference
    k.set(a->data);                               // error: k.set takes the field by reference
    auto l = [](void *& x) { x = nullptr; };
    l(a->data);                                   // error: l takes the field by reference
    auto m = [&x = a->data]() { return x; };      // error: captures the field by reference
    auto o = [x = a->data]() { return x; };
    void * chained = a->data = nullptr;           // error: value of a store
    if ((a->data = out)) {                        // error: value of a store
        by_value(b.data = out);                   // error: value of a store
    }
    (n ? a->data : b.data) = nullptr;             // error: through parentheses // error: through parentheses
    (a->data) = nullptr;                          // error: through parentheses
    a->src[n++]->data += 1;                       // error: effects
    a->src[0]->data <<= 1;                        // error: with <<=
    ++a->data;                                    // error: prefix increment
    *ADDRESS(a->data) = nullptr;                  // error: the macro ADDRESS
    SET(a->data, nullptr);                        // error: the macro SET
    INDIRECT(b.data, out);                        // error: the macro INDIRECT
    asm volatile("" : "+r"(a->data));             // error: assembly
    asm volatile("" : : "r"(a->data));
    decltype((a->data)) z = *out;                 // error: decltype
    size_t offset = offsetof(ggml_tensor, data);  // error: the offset
    size_t other = __builtin_offsetof(struct ggml_tensor, data); // error: the offset
    auto pm = &ggml_tensor::data;                 // error: without an object
    return sizeof(ggml_tensor::data) + a->data;   // error: without an object
}

void *& g(ggml_tensor * t) { return t->data; }    // error: a reference to the field is returned
auto h(ggml_tensor * t) -> void *& { return t->data; } // error: a reference to the field is returned
ggml_tensor make();
void * i() { return make().data; }                // error: temporary value

struct heir : ggml_tensor {
    void * named() { return this->data; }
    void * bare() { return data; }                // error: without this->
    void * local(void * data) { return data; }
};

#define SAME(x) (x)
void same(ggml_tensor * t) {
    SAME(t->data) = nullptr;                      // error: is stored to
    void ** p = &SAME(t->data);                   // error: the address of the field
    by_value(SAME(t->data));
}
