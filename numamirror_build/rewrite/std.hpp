// What the engine needs to know about the C++ standard library, as declarations.
// Only types that lead from a container, iterator or wrapper to what is in it; arguments hardly matter.

namespace std {

template <class T> struct iterator {
    T & operator*() const;
    T * operator->() const;
    T & operator[](long) const;
    iterator operator+(long) const;
    iterator operator-(long) const;
    iterator operator++();
    iterator operator--();
    iterator base() const;
};

template <class A, class B> struct pair {
    A first;
    B second;
};

template <class... T> struct tuple {
};

template <class T> struct sequence {
    using value_type = T;
    using reference = T &;
    using pointer = T *;
    using iterator = std::iterator<T>;
    using const_iterator = std::iterator<T>;
    T & operator[](long) const;
    T & at(long) const;
    T & front() const;
    T & back() const;
    T & top() const;
    T * data() const;
    std::iterator<T> begin() const;
    std::iterator<T> end() const;
    std::iterator<T> cbegin() const;
    std::iterator<T> cend() const;
    std::iterator<T> rbegin() const;
    std::iterator<T> rend() const;
    std::iterator<T> insert(...);
    std::iterator<T> emplace(...);
    std::iterator<T> erase(...);
    T & emplace_back(...);
    T & emplace_front(...);
};

template <class T, class A = void> struct vector : sequence<T> {};
template <class T, class A = void> struct deque : sequence<T> {};
template <class T, class A = void> struct list : sequence<T> {};
template <class T, class A = void> struct forward_list : sequence<T> {};
template <class T, int N> struct array : sequence<T> {};
template <class T, int N = 0> struct span : sequence<T> {};
template <class T> struct initializer_list : sequence<T> {};
template <class T, class C = void> struct stack : sequence<T> {};
template <class T, class C = void> struct queue : sequence<T> {};
template <class T, class C = void, class L = void> struct priority_queue : sequence<T> {};

template <class T> struct set_base {
    using value_type = T;
    using iterator = std::iterator<T>;
    using const_iterator = std::iterator<T>;
    std::iterator<T> begin() const;
    std::iterator<T> end() const;
    std::iterator<T> cbegin() const;
    std::iterator<T> cend() const;
    std::iterator<T> rbegin() const;
    std::iterator<T> rend() const;
    std::iterator<T> find(...) const;
    std::iterator<T> lower_bound(...) const;
    std::iterator<T> upper_bound(...) const;
    std::iterator<T> erase(...);
    pair<std::iterator<T>, bool> insert(...);
    pair<std::iterator<T>, bool> emplace(...);
    pair<std::iterator<T>, bool> try_emplace(...);
    pair<std::iterator<T>, bool> insert_or_assign(...);
};

template <class T, class C = void, class A = void> struct set : set_base<T> {};
template <class T, class C = void, class A = void> struct multiset : set_base<T> {};
template <class T, class H = void, class E = void, class A = void> struct unordered_set : set_base<T> {};
template <class T, class H = void, class E = void, class A = void> struct unordered_multiset : set_base<T> {};

template <class K, class V> struct map_base : set_base<pair<K, V>> {
    using key_type = K;
    using mapped_type = V;
    V & operator[](...);
    V & at(...) const;
};

template <class K, class V, class C = void, class A = void> struct map : map_base<K, V> {};
template <class K, class V, class C = void, class A = void> struct multimap : map_base<K, V> {};
template <class K, class V, class H = void, class E = void, class A = void> struct unordered_map : map_base<K, V> {};
template <class K, class V, class H = void, class E = void, class A = void> struct unordered_multimap : map_base<K, V> {};

template <class T, class D = void> struct unique_ptr {
    using element_type = T;
    T & operator*() const;
    T * operator->() const;
    T & operator[](long) const;
    T * get() const;
    T * release();
};

template <class T> struct shared_ptr : unique_ptr<T> {};

template <class T> struct weak_ptr {
    shared_ptr<T> lock() const;
};

template <class T> struct optional {
    T & operator*() const;
    T * operator->() const;
    T & value() const;
    T value_or(...) const;
    T & emplace(...);
};

template <class T> struct reference_wrapper {
    T & get() const;
};

template <class T> struct atomic {
    T load(...) const;
    T exchange(...);
};

template <class T> struct future {
    T get();
};

template <class F> struct function {
};

template <class T> T & move(T & t);
template <class T> T & forward(T & t);
template <class T> T & as_const(T & t);
template <class T> T * addressof(T & t);
template <class T> T exchange(T & t, ...);
template <class T> reference_wrapper<T> ref(T & t);
template <class T> reference_wrapper<T> cref(T & t);
template <class T> const T & min(const T & a, ...);
template <class T> const T & max(const T & a, ...);
template <class T> T & clamp(T & a, ...);
template <class T> unique_ptr<T> make_unique(...);
template <class T> shared_ptr<T> make_shared(...);
template <class T> optional<T> make_optional(T t);
template <class A, class B> pair<A, B> make_pair(A a, B b);
template <class I> I next(I i, ...);
template <class I> I prev(I i, ...);
template <class I> I find(I first, ...);
template <class I> I find_if(I first, ...);
template <class I> I find_if_not(I first, ...);
template <class I> I lower_bound(I first, ...);
template <class I> I upper_bound(I first, ...);
template <class I> I min_element(I first, ...);
template <class I> I max_element(I first, ...);
template <class I> I remove_if(I first, ...);
template <class I> I unique(I first, ...);
template <class T> T * begin(T * a);
template <class T> T * end(T * a);

}
