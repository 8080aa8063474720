#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/emulator/driver/session.h"

namespace {

struct Loaded {
  CUresult result = CUDA_SUCCESS;
  std::string log;
};

/// Loads a text and unloads it again; what the log buffer said.
Loaded load(const std::string& text, std::size_t log_bytes = 1024) {
  std::string log(log_bytes, '#');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  Loaded loaded;
  loaded.result = cuModuleLoadDataEx(&module, text.c_str(), 2, options, values);
  log.resize(reinterpret_cast<std::size_t>(values[1]));
  loaded.log = log;
  if (loaded.result == CUDA_SUCCESS) CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
  return loaded;
}

bool says(const Loaded& loaded, const std::string& words) {
  return loaded.log.find(words) != std::string::npos;
}

/// A module with one kernel, of which `body` is in line 4 of the text.
std::string kernel_with(const std::string& body,
                        const std::string& header = ".version 7.8\n.target sm_75\n") {
  return header + ".address_size 64\n.visible .entry k() { .reg .b32 %r<4>; " + body + " ret; }\n";
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("PTX with leading comments and white space is loaded, its kernels and variables found by name") {
  const Session session;
  CUmodule module = load_test_ptx();
  CHECK(kernel(module, "add_one") != nullptr);
  CHECK(kernel(module, "add_one") == kernel(module, "add_one"));
  CUfunction function = nullptr;
  CHECK(cuModuleGetFunction(&function, module, "subtract_one") == CUDA_ERROR_NOT_FOUND);
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  REQUIRE(cuModuleGetGlobal(&address, &bytes, module, "table") == CUDA_SUCCESS);
  CHECK(bytes == 16);
  CHECK(download(address, 4) == std::vector<std::uint32_t>{1, 2, 3, 4});
  REQUIRE(cuModuleGetGlobal(&address, &bytes, module, "zeros") == CUDA_SUCCESS);
  CHECK(download(address, 8) == std::vector<std::uint32_t>(8, 0));
  CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);  // a variable goes with its module
  CHECK(cuModuleGetGlobal(&address, &bytes, module, "tables") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("machine code is answered with CUDA_ERROR_NO_BINARY_FOR_GPU, whatever wraps it") {
  const Session session;
  for (const std::string& magic : {std::string("\x7f"
                                               "ELF"),
                                   std::string("\x50\xed\x55\xba"), std::string("\xb1\x43\x62\x46")}) {
    const Loaded loaded = load(magic + std::string(60, '\0'));
    CHECK(loaded.result == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(says(loaded, "the emulator runs PTX"));
  }
}

TEST_CASE("an image that is not PTX is invalid") {
  const Session session;
  for (const char* text : {"", "   ", "// nothing", "/* never ended", "hello", "version 7.8",
                           "\x7f"
                           "EL"})
    CHECK(load(text).result == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("PTX newer than the emulator, or for a newer device, is refused as such") {
  const Session session(2);  // sm_80
  Loaded loaded = load(kernel_with("", ".version 99.0\n.target sm_75\n"));
  CHECK(loaded.result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CHECK(says(loaded, "PTX 99.x is newer"));
  loaded = load(kernel_with("", ".version 7.8\n.target sm_90\n"));
  CHECK(loaded.result == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(says(loaded, "sm_90 does not run on sm_80"));
  loaded = load(kernel_with("", ".version 8.0\n.target sm_90a\n"));
  CHECK(loaded.result == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(says(loaded, "sm_90a does not run on sm_80"));
  CHECK(load(kernel_with("", ".version 7.8\n.target sm_80\n")).result == CUDA_SUCCESS);
}

TEST_CASE("malformed or unimplemented code is named with its line, in the buffer and in the report") {
  const Session session;
  Loaded loaded = load(kernel_with("frobnicate.b32 %r1, %r2;"));
  CHECK(loaded.result == CUDA_ERROR_INVALID_PTX);
  CHECK(says(loaded, "line 4"));
  CHECK(says(loaded, "frobnicate"));
  CHECK(std::string(emulatorLastReport()) == loaded.log);
  loaded = load(kernel_with("add.s32 %r1, %r2"));
  CHECK(loaded.result == CUDA_ERROR_INVALID_PTX);
  CHECK(says(loaded, "line 4"));
  loaded = load(kernel_with("add.s32 %r1, %r9, 1;"));
  CHECK(loaded.result == CUDA_ERROR_INVALID_PTX);
  CHECK(says(loaded, "%r9"));
  std::string cut = test_ptx();
  cut.resize(cut.size() / 2);
  CHECK(load(cut).result == CUDA_ERROR_INVALID_PTX);
}

TEST_CASE("a module is loaded whole or not at all") {
  const Session session;
  const EmulatorHeld before = emulatorHeld();
  std::string text = test_ptx();
  replace(text, "hungry()\n{", "hungry()\n{ .reg .b32 %x; frobnicate.b32 %x;");
  CHECK(load(text).result == CUDA_ERROR_INVALID_PTX);
  CHECK(emulatorHeld().modules == before.modules);
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  CHECK(free == total);
}

TEST_CASE("a log that is longer than its buffer is truncated, and ends with NUL") {
  const Session session;
  const Loaded loaded = load(kernel_with("frobnicate.b32 %r1, %r2;"), 8);
  CHECK(loaded.result == CUDA_ERROR_INVALID_PTX);
  CHECK(loaded.log.size() == 7);
  CHECK(loaded.log.find('\0') == std::string::npos);
  CHECK(load(kernel_with("frobnicate.b32 %r1, %r2;"), 1).log.empty());
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, kernel_with("frobnicate.b32 %r1;").c_str()) == CUDA_ERROR_INVALID_PTX);
}

TEST_CASE("more static shared memory than a block may have is refused") {
  const Session session;
  std::string text = test_ptx();
  replace(text, "[40960]", "[49160]");
  const Loaded loaded = load(text);
  CHECK(loaded.result == CUDA_ERROR_INVALID_PTX);
  CHECK(says(loaded, "49160"));
}

TEST_CASE("null pointers, invalid handles and stale handles are refused") {
  const Session session;
  CUmodule module = load_test_ptx();
  CUfunction function = kernel(module, "nothing");
  CUfunction found = nullptr;
  int value = 0;
  CHECK(cuModuleLoadData(nullptr, test_ptx().c_str()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleLoadData(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleLoadDataEx(&module, test_ptx().c_str(), 1, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleGetFunction(nullptr, module, "nothing") == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleGetFunction(&found, module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleGetFunction(&found, nullptr, "nothing") == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuModuleGetFunction(&found, reinterpret_cast<CUmodule>(function), "nothing") ==
        CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, function) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, function) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(cuModuleUnload(module) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuModuleUnload(nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(launch_plain(function) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a kernel's attributes are those of its PTX") {
  const Session session;
  const CUmodule module = load_test_ptx();
  const auto attribute = [&](const char* name, CUfunction_attribute which) {
    int value = -1;
    REQUIRE(cuFuncGetAttribute(&value, which, kernel(module, name)) == CUDA_SUCCESS);
    return value;
  };
  CHECK(attribute("nothing", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
  CHECK(attribute("bounded", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 64);
  CHECK(attribute("hungry", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 40960);
  CHECK(attribute("hungry", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) == 8192);
  CHECK(attribute("nothing", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) == 16);
  CHECK(attribute("nothing", CU_FUNC_ATTRIBUTE_PTX_VERSION) == 75);
  CHECK(attribute("nothing", CU_FUNC_ATTRIBUTE_BINARY_VERSION) == 90);
  std::size_t offset = 0;
  std::size_t bytes = 0;
  CHECK(cuFuncGetParamInfo(kernel(module, "add_one"), 1, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 8);
  CHECK(bytes == 4);
  CHECK(cuFuncGetParamInfo(kernel(module, "add_one"), 2, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a module is loaded from a file, and a missing file is reported") {
  const Session session;
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "sparsekiln-driver-test.ptx";
  std::ofstream(file) << test_ptx();
  CUmodule module = nullptr;
  CHECK(cuModuleLoad(&module, file.c_str()) == CUDA_SUCCESS);
  std::filesystem::remove(file);
  CHECK(cuModuleLoad(&module, file.c_str()) == CUDA_ERROR_FILE_NOT_FOUND);
  CHECK(cuModuleLoad(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a library's kernel is a function of each context that asks, and may be launched directly") {
  const Session session;
  const EmulatorHeld before = emulatorHeld();
  CUlibrary library = nullptr;
  REQUIRE(cuLibraryLoadData(&library, test_ptx().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  CUkernel add_one = nullptr;
  REQUIRE(cuLibraryGetKernel(&add_one, library, "add_one") == CUDA_SUCCESS);
  CHECK(cuLibraryGetKernel(&add_one, library, "none") == CUDA_ERROR_NOT_FOUND);
  const CUdeviceptr memory = upload({1, 2, 3});
  CHECK(launch_add_one(reinterpret_cast<CUfunction>(add_one), memory, 3) == CUDA_SUCCESS);
  CHECK(download(memory, 3) == std::vector<std::uint32_t>{2, 3, 4});
  {
    const Session other(1);
    CUfunction there = nullptr;
    REQUIRE(cuKernelGetFunction(&there, add_one) == CUDA_SUCCESS);
    const CUdeviceptr memory_there = upload({5});
    CHECK(launch_add_one(there, memory_there, 1) == CUDA_SUCCESS);
    CHECK(download(memory_there, 1) == std::vector<std::uint32_t>{6});
  }
  REQUIRE(cuCtxSetCurrent(session.context()) == CUDA_SUCCESS);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
  CHECK(cuLibraryUnload(library) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(emulatorHeld().modules == before.modules);
  CHECK(launch_add_one(reinterpret_cast<CUfunction>(add_one), memory, 3) == CUDA_ERROR_INVALID_HANDLE);
}
