// For drivers: a scenario whose condition does not hold ends with a message and 1.

#pragma once

#include <cstdio>
#include <cstdlib>

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)
