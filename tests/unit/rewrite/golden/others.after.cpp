// Nothing changes: other structs with a member of that name, functions called data, comments, strings, plain names.
#include "ggml.h"
#include <string>
#include <vector>

struct token_data { int id; };
struct token_array { token_data * data; size_t size; };
struct buffer { void * data; };
struct blob { std::vector<char> data; };
template <typename T> struct view { T * data; };
union box { struct { void * data; } in; int other; };
namespace ns { struct ggml_tensor { void * data; }; }
struct outer { struct ggml_tensor { void * data; } inner; };

#define GET(b) ((b)->data)

void * f(token_array & a, buffer * b, blob & c, view<ggml_tensor> v, std::vector<int> & d, box & x, ns::ggml_tensor * n, outer & o) {
    // t->data is a comment, and so is
    /* ggml_tensor * t; t->data */
    const char * s = "t->data";
    const char * r = R"(t->data)";
    int data = a.data[0].id;
    b->data = nullptr;
    c.data.push_back(*s + *r + char(data));
    data += d.data()[0];
    auto * local = b;
    auto get = [](const auto & e) { return e.size; };
    auto first = [](const buffer & e) { return e.data; };
    return v.data == nullptr || GET(b) || x.in.data || n->data || o.inner.data || get(a) ? local->data : first(*b);
}
