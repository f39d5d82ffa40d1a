// Loads llama_driver, built as a shared library, runs it and unloads it, some times over:
//
//     plugin_host DRIVER SCENARIO MODEL THREADS

#include <dlfcn.h>

#include <cstdio>

int main(int argc, const char ** argv) {
    for (int round = 0; round < 3; round++) {
        void * plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        const auto drive = (int (*)(int, const char **)) dlsym(plugin, "drive");
        if (!drive || drive(argc - 1, argv + 1) != 0 || dlclose(plugin) != 0) {
            return 1;
        }
    }
    return 0;
}
