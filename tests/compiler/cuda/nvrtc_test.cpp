#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/nvrtc_search.h"
#include "tests/compiler/cuda/need_nvrtc.h"

namespace sparsekiln::cuda {
namespace {

const std::string kScale = "extern \"C\" __global__ void scale(float* y, float a) { y[threadIdx.x] *= a; }\n";

/// Sets an environment variable for the life of a scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    had_ = std::getenv(name) != nullptr;
    if (value != nullptr) {
      setenv(name, value, 1);
    } else {
      unsetenv(name);
    }
  }
  ~ScopedVariable() {
    if (had_) {
      setenv(name_, old_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST_CASE("one compile gives a cubin and PTX" * need_nvrtc()) {
  const NvrtcOutput output = find_nvrtc()->compile(kScale, "sm_90");
  REQUIRE(output.cubin.size() > 4);
  CHECK(output.cubin[0] == std::byte{0x7f});
  CHECK(output.cubin[1] == std::byte{'E'});
  CHECK(output.ptx.find(".target sm_90") != std::string::npos);
  CHECK(output.ptx.find(".entry scale") != std::string::npos);
  CHECK(output.ptx.find('\0') == std::string::npos);
}

TEST_CASE("PTX names the lines of the source, and no folder of this machine" * need_nvrtc()) {
  const NvrtcOutput output = find_nvrtc()->compile("\n\n" + kScale, "sm_90");
  CHECK(output.ptx.find(".file\t1 \"/sparsekiln.cu\"") != std::string::npos);
  CHECK(output.ptx.find(".loc\t1 3 ") != std::string::npos);
  CHECK(Nvrtc::options("sm_90").find("line-info") != std::string::npos);
}

TEST_CASE("two compiles of one source agree byte for byte, log included" * need_nvrtc()) {
  const auto nvrtc = find_nvrtc();
  const NvrtcOutput first = nvrtc->compile(kScale, "sm_80");
  const NvrtcOutput second = nvrtc->compile(kScale, "sm_80");
  CHECK(first.cubin == second.cubin);
  CHECK(first.ptx == second.ptx);
  CHECK(first.log == second.log);
  CHECK(first.log.find("registers") != std::string::npos);
  CHECK(first.log.find("Compile time") == std::string::npos);
}

TEST_CASE("a refused source comes back in the error, with the compiler's log" * need_nvrtc()) {
  const std::string source = "extern \"C\" __global__ void broken() { undeclared = 1; }\n";
  try {
    (void)find_nvrtc()->compile(source, "sm_90");
    FAIL("a source with an undeclared name was compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(error.source() == source);
    CHECK(error.log().find("undeclared") != std::string::npos);
    CHECK(std::string(error.what()).find("sm_90") != std::string::npos);
  }
}

TEST_CASE("an architecture that this NVRTC does not know is refused with the list of those it knows" *
          need_nvrtc()) {
  try {
    (void)find_nvrtc()->compile(kScale, "sm_35");
    FAIL("sm_35 was compiled for");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(std::string(error.what()).find("sm_90") != std::string::npos);
  }
}

TEST_CASE("the library says where it is, its version, and its architectures in ascending order" *
          need_nvrtc()) {
  const auto nvrtc = find_nvrtc();
  CHECK(nvrtc->path().filename().string().find("nvrtc") != std::string::npos);
  CHECK(nvrtc->version() >= 12000);
  REQUIRE(nvrtc->architectures().size() > 1);
  for (std::size_t i = 1; i < nvrtc->architectures().size(); ++i)
    CHECK(nvrtc->architectures()[i - 1] < nvrtc->architectures()[i]);
  CHECK(find_nvrtc() == nvrtc);
}

TEST_CASE("a library newer than the driver is refused" * need_nvrtc()) {
  const auto any = find_nvrtc();
  const ScopedVariable pinned("SPARSEKILN_NVRTC", any->path().c_str());
  try {
    (void)find_nvrtc({any->version() / 1000 * 1000 - 1000});
    FAIL("a newer NVRTC was taken");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(std::string(error.what()).find("no NVRTC was found whose code a driver for CUDA") !=
          std::string::npos);
  }
}

TEST_CASE("SPARSEKILN_NVRTC is the only place where it is set, and the error names it") {
  const ScopedVariable pinned("SPARSEKILN_NVRTC", "/nonexistent/libnvrtc.so.13");
  const ScopedVariable toolkit("CUDA_HOME", "/usr");
  CHECK(search_nvrtc().candidates.empty());
  try {
    (void)find_nvrtc();
    FAIL("NVRTC was found where there is none");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(std::string(error.what()).find("/nonexistent/libnvrtc.so.13") != std::string::npos);
  }
}

TEST_CASE("without it, CUDA_HOME comes before CUDA_PATH, and that before the loader's path and the toolkit") {
  const ScopedVariable pinned("SPARSEKILN_NVRTC", nullptr);
  const ScopedVariable home("CUDA_HOME", "/first");
  const ScopedVariable path("CUDA_PATH", "/second");
  const NvrtcSearch search = search_nvrtc();
  const auto place = [&](const std::string& start) {
    for (std::size_t i = 0; i < search.looked_in.size(); ++i)
      if (search.looked_in[i].starts_with(start)) return i;
    return search.looked_in.size();
  };
  CHECK(place("/first/lib64") < place("/second/lib64"));
  CHECK(place("/second/lib64") < place("libnvrtc.so.13"));
  CHECK(place("libnvrtc.so.13") < place("libnvrtc.so.12"));
  CHECK(place("libnvrtc.so.12") < place("/usr/local/cuda"));
  CHECK(place("/usr/local/cuda") < search.looked_in.size());
}

}  // namespace
}  // namespace sparsekiln::cuda
