// An access whose base cannot be followed to a declaration is an error, whatever its name looks like.
#include "ggml.h"
#include "not-in-the-tree.h"
#include <vector>

struct other { void * data; };
template <typename T> void * mixed(T * t) { return t->data; }       // error: stands for tensors and for others
template <typename T> void * unused(T * t) { return t->data; }      // error: nothing says
template <typename T> struct traits { typename T::type * member; };
#define UNUSED(t) ((t)->data)                     // error: no file uses the macro UNUSED
#define BOTH(t) ((t)->data)                       // error: with tensors and with others
#define PART(t) t->data                           // error: only a part of its argument
#define STORED(t) ((t)->data)                     // error: used as the field itself
#define NAMED(t, f) ((t)->f)
#define FIELD data
#define OPAQUE(t) unknown_macro_content(t)

struct half {
    ggml_tensor * operator->() const;
};
struct crooked {
    ggml_tensor * operator->() const;
    other & operator*() const;
};
void * wrapped(half & h, crooked & c) {
    ggml_use(h->data);                            // error: half has no member operator*
    return c->data;                               // error: lead to different things
}

void * f(ggml_tensor * t, other * o, traits<other> & w, ggml_tensor ** pp) {
    void * a = undeclared->data;                  // error: no declaration of undeclared
    void * b = undeclared_function(t)->data;      // error: no declaration of undeclared_function
    auto c = from_outside(t);
    void * d = c->data;                           // error: no declaration of from_outside
    mixed(t);
    mixed(o);
    void * e = w.member->data;                    // error: has no type type
    BOTH(t); BOTH(o);
    PART(pp ? t : t);
    STORED(t) = nullptr;
    void * g = NAMED(t, data);                    // error: field's name as an argument
    void * h = NAMED(o, data);
    void * i = t->FIELD;                          // error: the macro FIELD names the field
    void * j = o->FIELD;
    auto k = [](auto * x) { return x->data; };    // error: used in another way than by a call
    hand_on(k);
    external_type<ggml_tensor *> m;
    void * n = m->data;                           // error: no rule for ->
    void * p = (o)(t)->data;                      // error: no member operator()
    void * q = (other)(t)->data;                  // error: cast
    void * r(t->data);                            // error: cannot be parsed
    void * s = OPAQUE(t)->data;                   // error: no declaration of unknown_macro_content
    return sizeof (t)->data;                      // error: the base cannot be told
}
