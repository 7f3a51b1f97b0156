#include "tests/gpu_sim/stand_in.h"

#include "backend/hip/modules.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <elf.h>
#include <libgen.h>
#include <stdio.h>
#include <unistd.h>

struct hip_sim_control *stand_in_open(char *folder, size_t size, int *status)
{
    char path[1200];
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    folder[length > 0 ? length : 0] = '\0';
    dirname(folder);
    snprintf(path, sizeof path, "%s/libamdhip64.so", folder);
    *status = 0;
    if (access(path, R_OK) != 0) {
        print_message("  the HIP backend is not run in a simulator: it needs a C++ compiler\n");
        return NULL;
    }
    if (gs_hip_module_count == 0) {
        print_message("  the HIP backend is not run in a simulator: this build has no code objects\n");
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        print_message("  %s\n", dlerror());
    struct hip_sim_control *control = library ? dlsym(library, HIP_SIM_CONTROL) : NULL;
    *status = control ? 0 : -1;
    return control;
}

static unsigned kind_of(size_t module)
{
    return ((const Elf64_Ehdr *)(const void *)gs_hip_modules[module].image)->e_flags & HIP_SIM_KIND_MASK;
}

void stand_in_kinds(unsigned kinds[2])
{
    kinds[0] = kinds[1] = kind_of(0);
    for (size_t i = gs_hip_module_count; i-- > 0;)
        if (strncmp(gs_hip_modules[i].arch, "gfx9", 4) != 0)
            kinds[1] = kind_of(i);
    for (size_t i = 0; i < gs_hip_module_count; i++) /* the last: the device refuses those before it */
        if (strncmp(gs_hip_modules[i].arch, "gfx9", 4) == 0)
            kinds[0] = kind_of(i);
}

const char *stand_in_arch(unsigned kind)
{
    for (size_t i = 0; i < gs_hip_module_count; i++)
        if (kind_of(i) == kind)
            return gs_hip_modules[i].arch;
    return "none";
}
