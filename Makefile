# gossamer: GNU Make. Targets: all (default), demo, programs, check, check-server, oracle, asan, lint, fuzz, bench, install,
# clean.
#
#   make BUILD=dir      build somewhere else        make CC=clang      another compiler
#   make CFLAGS='-O0 -g'                            make WERROR=1      warnings are errors

BUILD  ?= build
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
PYTHON ?= $(shell test -x build/venv/bin/python && echo build/venv/bin/python || echo python3)
MACHINE := $(shell $(CC) -dumpmachine)
ARCH    := $(patsubst arm64,aarch64,$(firstword $(subst -, ,$(MACHINE))))
OS      := $(if $(findstring linux,$(MACHINE)),Linux,$(if $(findstring darwin,$(MACHINE))$(findstring macos,$(MACHINE)),Darwin,$(shell uname -s)))
SETUP   := scripts/setup.sh

# A compiler for another machine, CC=aarch64-linux-gnu-gcc: that machine's libraries and archiver, no kernels of GPUs.
ifeq ($(filter $(patsubst arm64,aarch64,$(shell uname -m))-$(shell uname -s),$(ARCH)-$(OS)),)
PKG_CONFIG := PKG_CONFIG_LIBDIR=/usr/lib/$(MACHINE)/pkgconfig $(PKG_CONFIG)
SETUP      += --arm
CUDA       ?= no
HIP        ?= no
ifeq ($(origin AR),default)
AR         := $(if $(filter %-gcc,$(CC)),$(CC:%-gcc=%-ar),$(AR))
endif
endif

VERSION := $(shell awk '/define GS_VERSION_M|define GS_VERSION_P/ {v = v s $$3; s = "."} END {print v}' include/gossamer.h)

# ---------------------------------------------------------------- dependencies

# name of the pkg-config module : package on Debian and Ubuntu / Fedora / Homebrew
need = $(if $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes),,\
    $(error $(1) is missing: install $(2) (apt), $(3) (dnf) or $(4) (brew), or run $(SETUP)))

ifeq ($(filter clean lint-layers,$(MAKECMDGOALS)),)
$(call need,jansson,libjansson-dev,jansson-devel,jansson)
JANSSON_CFLAGS := $(shell $(PKG_CONFIG) --cflags jansson)
JANSSON_LIBS   := $(shell $(PKG_CONFIG) --libs jansson)
endif

# Asked for only where a test is built.
CMOCKA_CFLAGS = $(call need,cmocka,libcmocka-dev,libcmocka-devel,cmocka)$(shell $(PKG_CONFIG) --cflags cmocka)
CMOCKA_LIBS    = $(call need,cmocka,libcmocka-dev,libcmocka-devel,cmocka)$(shell $(PKG_CONFIG) --libs cmocka)

# Optional: without both, "gossamer pull" says what it lacks. PULL=no leaves them out on purpose.
PULL_NEEDS := libcurl libcrypto
PULL ?= $(shell $(PKG_CONFIG) --exists $(PULL_NEEDS) 2>/dev/null && echo yes || echo no)
ifeq ($(PULL),yes)
PULL_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PULL_NEEDS))
PULL_LIBS   := $(shell $(PKG_CONFIG) --libs $(PULL_NEEDS))
else ifeq ($(filter clean lint lint-layers format,$(MAKECMDGOALS)),)
$(info gossamer pull is left out: it needs libcurl and libcrypto (scripts/setup.sh installs them))
endif

# Optional: without it "gossamer chat" reads plain lines. EDIT=no leaves it out on purpose.
EDIT ?= $(shell $(PKG_CONFIG) --exists libedit 2>/dev/null && echo yes || echo no)
ifeq ($(EDIT),yes)
EDIT_CFLAGS := $(shell $(PKG_CONFIG) --cflags libedit) -DGS_HAVE_LIBEDIT=1
EDIT_LIBS   := $(shell $(PKG_CONFIG) --libs libedit)
else ifeq ($(filter clean lint lint-layers format,$(MAKECMDGOALS)),)
$(info gossamer chat has no line editing: it needs libedit (scripts/setup.sh installs it))
endif

# Optional: without it "gossamer serve" says what it lacks. SERVE=no leaves it out on purpose.
SERVE ?= $(shell $(PKG_CONFIG) --exists libmicrohttpd 2>/dev/null && echo yes || echo no)
ifeq ($(SERVE),yes)
SERVE_CFLAGS := $(shell $(PKG_CONFIG) --cflags libmicrohttpd)
SERVE_LIBS   := $(shell $(PKG_CONFIG) --libs libmicrohttpd)
else ifeq ($(filter clean lint lint-layers format,$(MAKECMDGOALS)),)
$(info gossamer serve is left out: it needs libmicrohttpd (scripts/setup.sh installs it))
endif

# One short line for each command; V=1 shows it whole.
ifdef V
say =
else
say = @echo '  $(1)' $(2);
endif

# ---------------------------------------------------------------- flags

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
            -Wvla -Wundef
ifdef WERROR
WARNINGS += -Werror
endif
# No contraction into fused multiply-add: the exact backend's bits are the same on every processor.
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -I. -ffp-contract=off -fno-math-errno $(WARNINGS) \
              $(JANSSON_CFLAGS) $(PULL_CFLAGS) $(EDIT_CFLAGS) $(SERVE_CFLAGS) -pthread -MMD -MP $(CFLAGS)
LIBS := $(JANSSON_LIBS) -lm -pthread

# ---------------------------------------------------------------- files

LIB_DIRS := base format text chat model backend backend/cpu backend/gpu backend/cuda backend/hip backend/metal engine
LIB_SRC  := $(foreach d,$(LIB_DIRS),$(wildcard src/$(d)/*.c))
# Part of the binary, not of the library: a program that links libgossamer.a needs no libcurl.
ifeq ($(PULL),yes)
HUB_SRC  := $(filter-out src/hub/absent.c,$(wildcard src/hub/*.c))
else
HUB_SRC  := src/hub/absent.c src/hub/cache.c src/hub/listing.c src/hub/name.c src/hub/ranges.c
endif
HUB_OBJ  := $(HUB_SRC:%.c=$(BUILD)/%.o)
# The same for the server and libmicrohttpd.
SERVE_SRC := $(wildcard src/server/*.c src/server/page/*.c)
ifeq ($(SERVE),yes)
SERVE_SRC := $(filter-out src/server/absent.c,$(SERVE_SRC))
else
SERVE_SRC := $(filter-out src/server/http_daemon.c,$(SERVE_SRC))
endif
SERVE_OBJ := $(SERVE_SRC:%.c=$(BUILD)/%.o)
CLI_SRC  := $(wildcard src/cli/*.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)

# Each file of kernels/ is compiled once per instruction set; GS_ISA names the variant inside it.
KERNEL_SRC := $(wildcard src/backend/cpu/kernels/*.c)
ISA_FLAGS_avx2    := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512  := $(ISA_FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_FLAGS_avxvnni := $(ISA_FLAGS_avx2) -mavxvnni
ISA_FLAGS_avx512vnni256 := $(ISA_FLAGS_avx512) -mavx512vnni
ISA_FLAGS_avx512vnni := $(ISA_FLAGS_avx512vnni256) -mavx512vbmi
ISA_FLAGS_avx512bf16 := $(ISA_FLAGS_avx512vnni) -mavx512bf16
ISA_FLAGS_amx     := $(ISA_FLAGS_avx512bf16) -mamx-tile -mamx-int8 -DGS_TILES
ISA_FLAGS_dotprod := -march=armv8.2-a+dotprod
ISA_FLAGS_i8mm    := $(ISA_FLAGS_dotprod)+i8mm
ISA_FLAGS_bf16    := $(ISA_FLAGS_i8mm)+bf16
ifeq ($(ARCH),x86_64)
ISAS := generic avx2 avxvnni avx512 avx512vnni256 avx512vnni avx512bf16 amx
else ifeq ($(ARCH),aarch64)
ISA_FLAGS_generic := -march=armv8-a # compilers for Apple's processors would take more for granted
ISAS := generic dotprod i8mm bf16
else
ISAS := generic
endif
LIB_OBJ += $(foreach i,$(ISAS),$(KERNEL_SRC:%.c=$(BUILD)/%.$(i).o))

# CUDA: each file of kernels becomes a fat binary, and all of them a part of the binary; the driver is opened at
# run time. Without nvcc the binary has no CUDA kernels and says so. CUDA=no leaves them out on purpose;
# CUDA_ARCHS="90a" compiles for fewer devices.
NVCC       ?= $(shell command -v nvcc || ls build/cuda/lib/python3*/site-packages/nvidia/cu13/bin/nvcc 2>/dev/null || echo nvcc)
CUDA       ?= $(shell command -v $(NVCC) >/dev/null 2>&1 && echo yes || echo no)
CUDA_ARCHS ?= 80 86 89 90a 100 120
CUDA_SRC   := $(wildcard src/backend/gpu/*.cu)
ifeq ($(CUDA),yes)
CUDA_FATBIN := $(CUDA_SRC:%.cu=$(BUILD)/%.fatbin)
CUDA_TOOLKIT := $(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | awk '{print $$1 * 1000 + $$2 * 10}')
# The decode and batch kernels are for 9.0 and later alone.
CUDA_NEWER  := $(or $(filter-out 80 86 89,$(CUDA_ARCHS)),90a)
NVCC_FLAGS  := -O3 -std=c++17 -Isrc
NVCC_ARCHS   = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_80,code=compute_80
$(BUILD)/src/backend/gpu/decode_%.fatbin $(BUILD)/src/backend/gpu/batch_%.fatbin: \
    NVCC_ARCHS = $(foreach a,$(CUDA_NEWER),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_90,code=compute_90
# Programs of single kernels, which need a device to run (bench/campaign/cuda.sh): compiled, so that they keep up.
CUDA_PROGRAMS := $(patsubst %.cu,$(BUILD)/%.ptx,$(wildcard bench/*.cu tests/gpu/*.cu))
LIB_SRC := $(filter-out src/backend/cuda/modules_absent.c,$(LIB_SRC))
LIB_OBJ := $(filter-out $(BUILD)/src/backend/cuda/modules_absent.o,$(LIB_OBJ)) $(BUILD)/src/backend/cuda/modules.o
else ifeq ($(filter clean lint lint-layers format,$(MAKECMDGOALS)),)
$(info the cuda backend has no kernels in this build: it needs nvcc, of CUDA 12.8 or later)
endif

# HIP: all its kernels become a code object for each kind of AMD GPU, and all of those a part of the binary; AMD's
# library is opened at run time. Without a clang that can, the binary has no HIP kernels and says so. HIP=no leaves
# them out on purpose; HIP_ARCHS="gfx942" compiles for fewer devices.
HIP_ARCHS ?= gfx90a gfx942 gfx1100 gfx1201
ifeq ($(filter clean lint lint-layers format,$(MAKECMDGOALS))$(filter no,$(HIP))$(HIPCXX),)
HIPCXX    := $(shell sh scripts/find-hip.sh $(HIP_ARCHS))
endif
ifeq ($(origin HIP),undefined)
HIP       := $(if $(HIPCXX),yes,no)
endif
HIP_FLAGS := -x hip --cuda-device-only -nogpuinc -nogpulib --no-gpu-bundle-output -O3 -std=c++17 -ffp-contract=off \
             -Wall -Wno-pass-failed -Isrc
ifeq ($(HIP),yes)
HIP_CO    := $(HIP_ARCHS:%=$(BUILD)/src/backend/hip/%.co)
LIB_SRC   := $(filter-out src/backend/hip/modules_absent.c,$(LIB_SRC))
LIB_OBJ   := $(filter-out $(BUILD)/src/backend/hip/modules_absent.o,$(LIB_OBJ)) $(BUILD)/src/backend/hip/modules.o
else ifeq ($(filter clean lint lint-layers format,$(MAKECMDGOALS)),)
$(info the hip backend has no kernels in this build: it needs clang and lld that compile for $(HIP_ARCHS), such as 19)
endif

TEST_SRC     := $(wildcard tests/*/test_*.c)
ifneq ($(PULL),yes) # what needs the libraries
TEST_SRC     := $(filter-out tests/hub/test_http.c tests/hub/test_digest.c,$(TEST_SRC))
endif
ifneq ($(OS),Linux) # the simulators of GPUs make shared objects in ELF; HIP's code objects are ELF
TEST_SRC     := $(filter-out tests/sim/% tests/gpu_sim/% tests/metal_sim/% tests/backend/test_hip.c,$(TEST_SRC))
endif
TEST_BIN     := $(TEST_SRC:tests/%.c=$(BUILD)/tests/%)
SUPPORT_SRC  := $(wildcard tests/support/*.c)
SUPPORT_OBJ  := $(SUPPORT_SRC:%.c=$(BUILD)/%.o)
FUZZ_SRC     := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN     := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/fuzz/%)
BENCH_SRC    := $(wildcard bench/bench_*.c)
BENCH_BIN    := $(BENCH_SRC:%.c=$(BUILD)/%)

.PHONY: all demo programs check check-unit check-campaign check-server oracle asan lint lint-layers format fuzz bench install clean
.SECONDARY:

all: $(BUILD)/gossamer $(BUILD)/libgossamer.a

# Lists that decide what is built, written anew only when they are others.
.PHONY: FORCE
$(BUILD)/src/library.list: list = $(LIB_OBJ)
$(BUILD)/src/backend/hip/archs.list: list = $(HIP_ARCHS)
$(BUILD)/%.list: FORCE
	@mkdir -p $(@D)
	@echo '$(list)' | cmp -s - $@ || echo '$(list)' > $@

$(BUILD)/libgossamer.a: $(LIB_OBJ) $(BUILD)/src/library.list
	@rm -f $@
	$(call say,ar,$@)$(AR) rcs $@ $(filter %.o,$^)

$(BUILD)/gossamer: $(CLI_OBJ) $(SERVE_OBJ) $(HUB_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(PULL_LIBS) $(EDIT_LIBS) $(SERVE_LIBS) $(LIBS) -o $@

# Files that become part of an object (.incbin).
$(BUILD)/src/server/page/page.o: $(wildcard src/server/page/*)
$(BUILD)/src/server/openapi.o: $(wildcard src/server/openapi.json)
$(BUILD)/src/backend/metal/source.o: $(wildcard src/backend/metal/*.metal) src/backend/metal/kernels.h

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(ALL_CFLAGS) -c $< -o $@

define kernel_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(call say,cc,$$<\ $(1))$$(CC) $$(ALL_CFLAGS) $(ISA_FLAGS_$(1)) -DGS_ISA=$(1) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call kernel_rule,$(i))))

$(BUILD)/%.fatbin: %.cu
	@mkdir -p $(@D)
	$(call say,nvcc,$<)$(NVCC) $(NVCC_FLAGS) $(NVCC_ARCHS) -MD -MF $(@:.fatbin=.fatbin.d) -fatbin $< -o $@

$(BUILD)/%.ptx: %.cu
	@mkdir -p $(@D)
	$(call say,nvcc,$<)$(NVCC) -std=c++17 -Isrc -Iinclude -arch=compute_90a -MD -MF $(@:.ptx=.ptx.d) -ptx $< -o $@

$(BUILD)/src/backend/cuda/modules.S: $(CUDA_FATBIN) scripts/embed-kernels.sh
	@mkdir -p $(@D)
	$(call say,embed,$@)sh scripts/embed-kernels.sh gs_cuda 64 $(CUDA_TOOLKIT) $(CUDA_FATBIN) > $@.new && mv $@.new $@

$(BUILD)/src/backend/cuda/modules.o: $(BUILD)/src/backend/cuda/modules.S
	$(call say,as,$<)$(CC) -c $< -o $@

$(BUILD)/src/backend/hip/gfx%.co: src/backend/hip/kernels.cu
	@mkdir -p $(@D)
	$(call say,hip,$(@F))$(HIPCXX) $(HIP_FLAGS) --offload-arch=gfx$* -MD -MF $@.d -c $< -o $@

$(BUILD)/src/backend/hip/modules.S: $(HIP_CO) $(BUILD)/src/backend/hip/archs.list scripts/embed-kernels.sh
	@mkdir -p $(@D)
	$(call say,embed,$@)sh scripts/embed-kernels.sh gs_hip 4096 - $(HIP_CO) > $@.new && mv $@.new $@

$(BUILD)/src/backend/hip/modules.o: $(BUILD)/src/backend/hip/modules.S
	$(call say,as,$<)$(CC) -c $< -o $@

# ---------------------------------------------------------------- use

demo: all
	$(BUILD)/gossamer run models/demo --raw -p "The capital of France is" -n 12 --temp 0
	@echo
	$(BUILD)/gossamer run models/demo -p "What is the capital of Japan?" --temp 0 --show-reasoning
	@echo
	@echo "A conversation: $(BUILD)/gossamer chat models/demo"

# ---------------------------------------------------------------- tests

$(BUILD)/tests/%.o: ALL_CFLAGS += $(CMOCKA_CFLAGS)
ifeq ($(ARCH),x86_64) # the kernels for AMX, with the tile instructions emulated
$(BUILD)/tests/support/tiles_model.o: ALL_CFLAGS += $(ISA_FLAGS_avx512bf16)
endif

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) $(CMOCKA_LIBS) -o $@

# The fiber scheduler that runs GPU kernels on the CPU (docs/silicon.md).
SIM_OBJ := $(BUILD)/tests/sim/fiber.o $(BUILD)/tests/sim/guard.o
$(BUILD)/tests/sim/%: $(BUILD)/tests/sim/%.o $(SIM_OBJ)
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) $(CMOCKA_LIBS) -o $@

# The simulator of the Metal language and the stand-in for its library, one shared object (docs/silicon.md).
# Without clang 19 or later its tests are skipped.
METALSIM_CXX ?= $(firstword $(foreach v,21 20 19,$(shell command -v clang++-$(v))))
ifeq ($(ARCH),x86_64)
METALSIM_CXX_FLAGS ?= -march=native
else
METALSIM_CXX_FLAGS ?= --target=$(MACHINE) -march=armv8.2-a+fp16
endif
METALSIM_SRC := $(addprefix tests/sim/,fiber.c guard.c) \
                $(addprefix tests/metal_sim/,archive.c commands.c compile.c device.c dispatch.c foundation.c library.c \
                  message.c methods.c objects.c scan.c tokens.c)
METALSIM_OBJ := $(METALSIM_SRC:%.c=$(BUILD)/shared/%.o)

$(BUILD)/shared/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(ALL_CFLAGS) -fPIC -fno-semantic-interposition -ftls-model=initial-exec -DMETALSIM_ROOT='"$(CURDIR)"' -DMETALSIM_CXX='"$(METALSIM_CXX)"' \
	    -DMETALSIM_CXX_FLAGS='"$(METALSIM_CXX_FLAGS)"' -c $< -o $@

$(BUILD)/shared/metalsim.list: list = $(METALSIM_OBJ)
$(BUILD)/libmetalsim.so: $(METALSIM_OBJ) $(BUILD)/shared/metalsim.list
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libmetalsim.so $(METALSIM_OBJ) -ldl -pthread -o $@

# The Metal backend as it is, but for the path of the library that it opens.
$(BUILD)/sim/library.o: src/backend/metal/library.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(ALL_CFLAGS) -DGS_METAL_LIBRARY='"$(abspath $(BUILD))/libmetalsim.so"' -c $< -o $@

# gossamer on the simulator: $(BUILD)/sim/gossamer verify models/demo --backend metal
$(BUILD)/sim/gossamer: $(CLI_OBJ) $(SERVE_OBJ) $(HUB_OBJ) $(BUILD)/sim/library.o $(BUILD)/libgossamer.a | $(BUILD)/libmetalsim.so
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(PULL_LIBS) $(EDIT_LIBS) $(SERVE_LIBS) $(LIBS) -o $@

$(BUILD)/tests/metal_sim/test_metal_host $(BUILD)/tests/metal_sim/test_metal_model $(BUILD)/tests/metal_sim/test_metal_archive \
$(BUILD)/tests/metal_sim/test_metal_controls: $(BUILD)/sim/library.o
$(BUILD)/tests/metal_sim/test_metal_kernels $(BUILD)/tests/metal_sim/test_metal_prefill: $(BUILD)/tests/metal_sim/kernel_fixture.o
$(BUILD)/tests/metal_sim/%: $(BUILD)/tests/metal_sim/%.o $(SUPPORT_OBJ) $(BUILD)/libgossamer.a $(BUILD)/libmetalsim.so
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter-out %.o,$^) -Wl,-rpath,$(abspath $(BUILD)) $(LIBS) $(CMOCKA_LIBS) -o $@

# The kernels that CUDA and HIP share, as C++ for this processor with waves of 32 and of 64 lanes (docs/rocm.md): a
# library of each, one with each fault of faults.sh, one in libamdhip64.so's place that runs them, and one in
# libcuda.so.1's that only writes down what it is asked.
GPU_SIM       := $(BUILD)/tests/gpu_sim
GPU_SIM_CXX   ?= $(shell command -v $(patsubst clang%,clang++%,$(patsubst %gcc,%g++,$(patsubst cc,c++,$(CC)))))
GPU_SIM_FLAGS := -D_GNU_SOURCE -Isrc -Iinclude -I. -fPIC -fvisibility=hidden -ftls-model=initial-exec \
                 -ffp-contract=off -MMD -MP $(CFLAGS)
GPU_SIM_CXX_FLAGS := -std=c++17 -fno-exceptions -fno-rtti -Wall -Wno-unknown-pragmas $(GPU_SIM_FLAGS)
GPU_SIM_FAULTS := 32-first-read 32-before-write 32-mask-32 32-lane-32 32-past-end 32-past-shared 32-swapped 32-split \
                  32-barrier 32-last-row 64-mask-32 64-lane-32
GPU_SIM_LIBS  := $(if $(GPU_SIM_CXX),$(GPU_SIM)/libgpusim32.so $(GPU_SIM)/libgpusim64.so \
                   $(GPU_SIM_FAULTS:%=$(GPU_SIM)/libgpusim%.so) $(GPU_SIM)/libamdhip64.so) $(GPU_SIM)/libcuda.so.1

$(GPU_SIM)/%.pic.o: tests/sim/%.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) -std=c11 $(WARNINGS) $(GPU_SIM_FLAGS) -c $< -o $@

$(GPU_SIM)/%.pic.o: tests/gpu_sim/%.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) -std=c11 $(WARNINGS) $(GPU_SIM_FLAGS) -c $< -o $@

define gpu_sim_rules
$(GPU_SIM)/sim$(1).o: tests/gpu_sim/sim.c
	@mkdir -p $$(@D)
	$$(call say,cc,$$<\ $(1))$$(CC) -std=c11 $$(WARNINGS) $$(GPU_SIM_FLAGS) -DGS_GPU_SIM=$(1) -c $$< -o $$@
$(GPU_SIM)/kernels$(1).o: tests/gpu_sim/kernels.cc
	@mkdir -p $$(@D)
	$$(call say,c++,$$<\ $(1))$$(GPU_SIM_CXX) $$(GPU_SIM_CXX_FLAGS) -DGS_GPU_SIM=$(1) -c $$< -o $$@
$(GPU_SIM)/libgpusim$(1).so: $(GPU_SIM)/kernels$(1).o $(GPU_SIM)/sim$(1).o $(GPU_SIM)/fiber.pic.o $(GPU_SIM)/guard.pic.o
	$$(call say,link,$$@)$$(CC) $$(LDFLAGS) -shared -Wl,-Bsymbolic $$^ -lm -pthread -o $$@
endef
$(foreach w,32 64,$(eval $(call gpu_sim_rules,$(w))))

# Without optimisation: twelve of them are compiled, and a fault is one either way.
define gpu_sim_fault_rules
$(GPU_SIM)/kernels$(1)-$(2).o: tests/gpu_sim/kernels.cc src/backend/gpu/simple.cu tests/gpu_sim/faults.sh
	@mkdir -p $$(@D)
	@sh tests/gpu_sim/faults.sh $(2) src/backend/gpu/simple.cu > $$(@:.o=.cu)
	$$(call say,c++,$$<\ $(1) $(2))$$(GPU_SIM_CXX) $$(GPU_SIM_CXX_FLAGS) -O0 -DGS_GPU_SIM=$(1) \
	    -DGPU_SIM_SIMPLE='"$$(abspath $$(@:.o=.cu))"' -c $$< -o $$@
$(GPU_SIM)/libgpusim$(1)-$(2).so: $(GPU_SIM)/kernels$(1)-$(2).o $(GPU_SIM)/sim$(1).o $(GPU_SIM)/fiber.pic.o \
                                  $(GPU_SIM)/guard.pic.o
	$$(call say,link,$$@)$$(CC) $$(LDFLAGS) -shared -Wl,-Bsymbolic $$^ -lm -pthread -o $$@
endef
$(foreach f,$(GPU_SIM_FAULTS),$(eval $(call gpu_sim_fault_rules,$(firstword $(subst -, ,$(f))),$(patsubst 32-%,%,$(f:64-%=%)))))

$(GPU_SIM)/libamdhip64.so: $(GPU_SIM)/hip.pic.o
	$(call say,link,$@)$(CC) $(LDFLAGS) -shared -Wl,-soname,libamdhip64.so $^ -ldl -pthread -o $@
$(GPU_SIM)/libcuda.so.1: $(GPU_SIM)/cuda_trace.pic.o
	$(call say,link,$@)$(CC) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 $^ -pthread -o $@

$(GPU_SIM)/test_gpu_sim_kernels: $(addprefix $(GPU_SIM)/,checks.o checks_dense.o checks_draw.o checks_attention.o checks_experts.o checks_convert.o)
$(GPU_SIM)/test_gpu_sim_host $(GPU_SIM)/test_gpu_sim_measure: $(GPU_SIM)/stand_in.o
$(GPU_SIM)/test_%: $(GPU_SIM)/test_%.o $(SUPPORT_OBJ) $(BUILD)/libgossamer.a | $(GPU_SIM_LIBS)
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) -ldl $(CMOCKA_LIBS) -o $@

$(BUILD)/tests/hub/%: $(BUILD)/tests/hub/%.o $(SUPPORT_OBJ) $(HUB_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(PULL_LIBS) $(LIBS) $(CMOCKA_LIBS) -o $@

$(BUILD)/tests/server/%: $(BUILD)/tests/server/%.o $(SUPPORT_OBJ) $(SERVE_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(SERVE_LIBS) $(LIBS) $(CMOCKA_LIBS) -o $@

# All that check and oracle run or only compile.
ORACLE_BIN := $(addprefix $(BUILD)/tests/,golden/test_golden golden/test_golden_tables text/tokenize_driver \
                format/safetensors_driver chat/schema_driver)
programs: all $(TEST_BIN) $(ORACLE_BIN) $(CUDA_PROGRAMS) $(BUILD)/tests/server/load_client

# What is only compiled comes first: tests would run beside the compiler.
check: all check-unit check-campaign
check-unit check-campaign: | $(CUDA_PROGRAMS)

check-unit: $(BUILD)/gossamer $(TEST_BIN)
	@sh scripts/run-tests.sh $(BUILD) $(TEST_BIN)

# The campaign's scripts for GPUs that are not here: on the CPU backend, and how they judge; and the judge of programs.
check-campaign: $(BUILD)/gossamer
	@GOSSAMER=$(abspath $(BUILD)/gossamer) python3 tests/campaign/test_device.py
	@python3 tests/campaign/test_judge.py
	@python3 tests/campaign/test_cuda_table.py

# The server with real clients: needs build/venv (scripts/setup.sh --server). LOAD_SECONDS and LOAD_STREAMS
# lengthen the load test (docs/server.md).
check-server: $(BUILD)/gossamer $(BUILD)/tests/server/load_client
	GOSSAMER=$(abspath $(BUILD)/gossamer) $(PYTHON) -m pytest -q -p no:cacheprovider tests/server

# AddressSanitizer and UndefinedBehaviorSanitizer over the same tests, in a build folder of their own.
asan:
	$(MAKE) BUILD=$(BUILD)/asan CUDA=no HIP=no LDFLAGS='-fsanitize=address,undefined' \
	    CFLAGS='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -fno-var-tracking' \
	    check-unit

# The goldens made anew by transformers and compared with the committed ones and with gossamer.
oracle: all $(ORACLE_BIN)
	$(PYTHON) tools/oracle/check_live.py --gossamer $(BUILD)/gossamer
	$(PYTHON) tests/text/compare_tokenizers.py --driver $(BUILD)/tests/text/tokenize_driver 20000 1
	$(PYTHON) tests/format/compare_safetensors.py $(BUILD)/tests/format/safetensors_driver
	$(PYTHON) tests/chat/compare_schema.py --driver $(BUILD)/tests/chat/schema_driver --tokenizer models/demo
	$(PYTHON) tools/oracle/check_harmony.py --gossamer $(BUILD)/gossamer
	$(PYTHON) tools/synth/check.py --gossamer $(BUILD)/gossamer

# libFuzzer targets (clang), FUZZ_SECONDS over all of them, from the seed corpora under tests/fuzz/corpus.
FUZZ_SECONDS ?= 60
fuzz:
	@sh scripts/run-fuzz.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

# ---------------------------------------------------------------- bench

$(BUILD)/bench/%: bench/%.c $(BUILD)/libgossamer.a
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter-out %.a,$^) $(filter %.a,$^) $(LIBS) -o $@

$(BUILD)/bench/bench_kernels: $(addprefix $(BUILD)/tests/support/,kernel_cases.o tiles_model.o tiles_emulated.o)

bench: all $(BENCH_BIN)
	@sh scripts/run-bench.sh $(BUILD)

# ---------------------------------------------------------------- lint, install

lint: lint-layers
	@sh scripts/lint.sh

lint-layers:
	@python3 tools/lint/layers.py

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BUILD)/gossamer $(DESTDIR)$(PREFIX)/bin/gossamer
	install -m 644 $(BUILD)/libgossamer.a $(DESTDIR)$(PREFIX)/lib/libgossamer.a
	install -m 644 include/gossamer.h $(DESTDIR)$(PREFIX)/include/gossamer.h
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' \
	    'Name: gossamer' 'Description: gpt-oss inference from scratch, in C' 'Version: $(VERSION)' \
	    'Requires: jansson' 'Libs: -L$${libdir} -lgossamer -lm -pthread' \
	    'Cflags: -I$${includedir}' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/gossamer.pc

clean:
	rm -rf $(BUILD)/src $(BUILD)/tests $(BUILD)/shared $(BUILD)/libmetalsim.so $(BUILD)/metalsim_cache $(BUILD)/bench $(BUILD)/asan $(BUILD)/arm $(BUILD)/macos $(BUILD)/fuzz $(BUILD)/gossamer \
	    $(BUILD)/libgossamer.a

-include $(shell find $(BUILD) -name venv -prune -o -name '*.d' -print 2>/dev/null)
