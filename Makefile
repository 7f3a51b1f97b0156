# gossamer: GNU Make. Targets: all (default), demo, check, oracle, asan, lint, fuzz, bench, install, clean.
#
#   make BUILD=dir      build somewhere else        make CC=clang      another compiler
#   make CFLAGS='-O0 -g'                            make WERROR=1      warnings are errors

BUILD  ?= build
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
PYTHON ?= $(shell test -x build/venv/bin/python && echo build/venv/bin/python || echo python3)
ARCH   := $(shell $(CC) -dumpmachine | cut -d- -f1)

VERSION := $(shell awk '/define GS_VERSION_M|define GS_VERSION_P/ {v = v s $$3; s = "."} END {print v}' include/gossamer.h)

# ---------------------------------------------------------------- dependencies

# name of the pkg-config module : package on Debian and Ubuntu / Fedora / Homebrew
need = $(if $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes),,\
    $(error $(1) is missing: install $(2) (apt), $(3) (dnf) or $(4) (brew), or run scripts/setup.sh))

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
              $(JANSSON_CFLAGS) $(PULL_CFLAGS) $(EDIT_CFLAGS) -pthread -MMD -MP $(CFLAGS)
LIBS := $(JANSSON_LIBS) -lm -pthread

# ---------------------------------------------------------------- files

LIB_DIRS := base format text chat model backend backend/cpu engine
LIB_SRC  := $(foreach d,$(LIB_DIRS),$(wildcard src/$(d)/*.c))
# Part of the binary, not of the library: a program that links libgossamer.a needs no libcurl.
ifeq ($(PULL),yes)
HUB_SRC  := $(filter-out src/hub/absent.c,$(wildcard src/hub/*.c))
else
HUB_SRC  := src/hub/absent.c src/hub/cache.c src/hub/listing.c src/hub/name.c src/hub/ranges.c
endif
HUB_OBJ  := $(HUB_SRC:%.c=$(BUILD)/%.o)
CLI_SRC  := $(wildcard src/cli/*.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)

# Each file of kernels/ is compiled once per instruction set; GS_ISA names the variant inside it.
KERNEL_SRC := $(wildcard src/backend/cpu/kernels/*.c)
ISA_FLAGS_generic :=
ISA_FLAGS_avx2    := -mavx2
ISA_FLAGS_avx512  := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ifeq ($(ARCH),x86_64)
ISAS := generic avx2 avx512
else
ISAS := generic
endif
LIB_OBJ += $(foreach i,$(ISAS),$(KERNEL_SRC:%.c=$(BUILD)/%.$(i).o))

TEST_SRC     := $(wildcard tests/*/test_*.c)
ifneq ($(PULL),yes) # what needs the libraries
TEST_SRC     := $(filter-out tests/hub/test_http.c tests/hub/test_digest.c,$(TEST_SRC))
endif
TEST_BIN     := $(TEST_SRC:tests/%.c=$(BUILD)/tests/%)
SUPPORT_SRC  := $(wildcard tests/support/*.c)
SUPPORT_OBJ  := $(SUPPORT_SRC:%.c=$(BUILD)/%.o)
FUZZ_SRC     := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN     := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/fuzz/%)
BENCH_SRC    := $(wildcard bench/bench_*.c)
BENCH_BIN    := $(BENCH_SRC:%.c=$(BUILD)/%)

.PHONY: all demo check check-unit oracle asan lint lint-layers format fuzz bench install clean
.SECONDARY:

all: $(BUILD)/gossamer $(BUILD)/libgossamer.a

$(BUILD)/libgossamer.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,ar,$@)$(AR) rcs $@ $^

$(BUILD)/gossamer: $(CLI_OBJ) $(HUB_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(PULL_LIBS) $(EDIT_LIBS) $(LIBS) -o $@

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(ALL_CFLAGS) -c $< -o $@

define kernel_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(call say,cc,$$<\ $(1))$$(CC) $$(ALL_CFLAGS) $(ISA_FLAGS_$(1)) -DGS_ISA=$(1) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call kernel_rule,$(i))))

# ---------------------------------------------------------------- use

demo: all
	$(BUILD)/gossamer run models/demo --raw -p "The capital of France is" -n 12 --temp 0
	@echo
	$(BUILD)/gossamer run models/demo -p "What is the capital of Japan?" --temp 0 --show-reasoning
	@echo
	@echo "A conversation: $(BUILD)/gossamer chat models/demo"

# ---------------------------------------------------------------- tests

$(BUILD)/tests/%.o: ALL_CFLAGS += $(CMOCKA_CFLAGS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) $(CMOCKA_LIBS) -o $@

$(BUILD)/tests/hub/%: $(BUILD)/tests/hub/%.o $(SUPPORT_OBJ) $(HUB_OBJ) $(BUILD)/libgossamer.a
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(PULL_LIBS) $(LIBS) $(CMOCKA_LIBS) -o $@

check: all check-unit

check-unit: $(BUILD)/gossamer $(TEST_BIN)
	@sh scripts/run-tests.sh $(BUILD) $(TEST_BIN)

# AddressSanitizer and UndefinedBehaviorSanitizer over the same tests, in a build folder of their own.
asan:
	$(MAKE) BUILD=$(BUILD)/asan LDFLAGS='-fsanitize=address,undefined' \
	    CFLAGS='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' \
	    check-unit

# The goldens made anew by transformers and compared with the committed ones and with gossamer.
oracle: all $(addprefix $(BUILD)/tests/,golden/test_golden golden/test_golden_tables text/tokenize_driver \
        format/safetensors_driver)
	$(PYTHON) tools/oracle/check_live.py --gossamer $(BUILD)/gossamer
	$(PYTHON) tests/text/compare_tokenizers.py --driver $(BUILD)/tests/text/tokenize_driver 20000 1
	$(PYTHON) tests/format/compare_safetensors.py $(BUILD)/tests/format/safetensors_driver
	$(PYTHON) tools/oracle/check_harmony.py --gossamer $(BUILD)/gossamer

# libFuzzer targets (clang), FUZZ_SECONDS over all of them, from the seed corpora under tests/fuzz/corpus.
FUZZ_SECONDS ?= 60
fuzz:
	@sh scripts/run-fuzz.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

# ---------------------------------------------------------------- bench

$(BUILD)/bench/%: bench/%.c $(BUILD)/libgossamer.a
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@

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
	rm -rf $(BUILD)/src $(BUILD)/tests $(BUILD)/bench $(BUILD)/asan $(BUILD)/fuzz $(BUILD)/gossamer \
	    $(BUILD)/libgossamer.a

-include $(shell find $(BUILD) -name venv -prune -o -name '*.d' -print 2>/dev/null)
