#include "tests/compiler/cuda/host_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <dlfcn.h>
#include <fmt/format.h>

namespace sparsekiln::cuda {
namespace {

namespace fs = std::filesystem;

/// Stands in front of the emitted source, in place of ptx.cuh.
constexpr const char* kDefinitions = R"shim(
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>
#include <ucontext.h>
#define __device__
#define __global__ __attribute__((visibility("default")))
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(threads, ctas)
struct __align__(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Dim { unsigned x = 0, y = 0; };
static Dim threadIdx, blockIdx, gridDim;

namespace shim {
struct Copy { float* to; const float* from; int bytes; };
struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[128 * 1024]};
  bool ended = false;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};
static std::vector<Thread> threads;
static ucontext_t scheduler;
static Thread* running;
static const char* fault;
static bool early;  // copies arrive at once; else when they are waited for, and not before

inline void pause() { swapcontext(&running->context, &scheduler); }
inline void finish(const Copy& copy) {
  if (copy.bytes > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
  std::memset(reinterpret_cast<char*>(copy.to) + copy.bytes, 0, static_cast<std::size_t>(16 - copy.bytes));
}
inline void aligned(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) fault = "a 16-byte access is misaligned";
}
}  // namespace shim

inline void __syncthreads() { shim::pause(); }
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* at, unsigned value) { const unsigned old = *at; *at += value; return old; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

namespace sparsekiln { namespace ptx {
inline void copy_async(float* to, const float* from, int bytes) {
  shim::aligned(to);
  shim::aligned(from);
  if (shim::early) shim::finish({to, from, bytes});
  else shim::running->open.push_back({to, from, bytes});
}
inline void commit_copies() {
  shim::running->groups.push_back(std::move(shim::running->open));
  shim::running->open.clear();
}
template <int kPending>
inline void wait_copies() {
  auto& groups = shim::running->groups;
  for (; groups.size() > kPending; groups.pop_front())
    for (const auto& copy : groups.front()) shim::finish(copy);
}
inline float4 load_shared(const float* at) { shim::aligned(at); return *reinterpret_cast<const float4*>(at); }
inline float load_relaxed(const float* at) { return *at; }
}}  // namespace sparsekiln::ptx
)shim";

constexpr const char* kRunner = R"shim(
struct HostArguments { const float* x; const float* w; float* y; void* workspace; int n; long long xs, ys; };
using HostKernel = void (*)(const float*, const float*, float*, void*, int, long long, long long);
static HostKernel host_kernel;
static const HostArguments* host_arguments;
static void host_thread() {
  const HostArguments& a = *host_arguments;
  host_kernel(a.x, a.w, a.y, a.workspace, a.n, a.xs, a.ys);
  shim::running->ended = true;
  shim::pause();
}
static void host_cta(int threads, unsigned order) {
  shim::threads.clear();
  shim::threads.resize(static_cast<std::size_t>(threads));
  for (auto& thread : shim::threads) {
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = 128 * 1024;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, host_thread, 0);
  }
  for (int ended = 0; ended == 0 && shim::fault == nullptr; ++order) {
    for (int i = 0; i < threads; ++i) {
      threadIdx.x = static_cast<unsigned>(order % 2 == 0 ? i : threads - 1 - i);
      shim::running = &shim::threads[threadIdx.x];
      swapcontext(&shim::scheduler, &shim::running->context);
      ended += shim::running->ended;
    }
    if (ended != 0 && ended != threads) shim::fault = "some threads ended while others wait at a barrier";
  }
  for (auto& thread : shim::threads)
    for (auto& group : thread.groups)
      if (!group.empty()) shim::fault = "a CTA ended before its copies had arrived";
}
extern "C" __global__ const char* host_run(HostKernel kernel, const HostArguments* arguments, int threads, int grid_x, int grid_y,
                                unsigned seed) {
  host_kernel = kernel;
  host_arguments = arguments;
  shim::fault = nullptr;
  shim::early = seed % 2 == 1;
  gridDim.x = static_cast<unsigned>(grid_x);
  gridDim.y = static_cast<unsigned>(grid_y);
  std::vector<Dim> ctas;
  for (unsigned y = 0; y < gridDim.y; ++y)
    for (unsigned x = 0; x < gridDim.x; ++x) ctas.push_back({x, y});
  for (std::size_t i = ctas.size(); i > 1; --i) {
    seed = seed * 1664525u + 1013904223u;
    std::swap(ctas[i - 1], ctas[(seed >> 8) % i]);
  }
  for (const Dim cta : ctas) {
    blockIdx = cta;
    host_cta(threads, seed++);
    if (shim::fault != nullptr) break;
  }
  return shim::fault;
}
)shim";

/// The emitted text without its wrappers of PTX instructions.
std::string without_ptx(const std::string& text) {
  const std::size_t begin = text.find("// ---- ptx.cuh");
  const std::size_t end = text.find("// ---- ", begin + 1);
  if (begin == std::string::npos || end == std::string::npos)
    throw std::runtime_error("the emitted source has no section 'ptx.cuh'");
  return text.substr(0, begin) + text.substr(end);
}

fs::path make_folder() {
  std::string name = (fs::temp_directory_path() / "sparsekiln-host-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder could be made");
  return name;
}

}  // namespace

HostModule::HostModule(const Source& source) : folder_(make_folder()) {
  const fs::path file = folder_ / "emitted.cpp";
  const fs::path object = folder_ / "emitted.so";
  std::ofstream(file) << kDefinitions << without_ptx(source.text) << kRunner;
  const char* const cxx = std::getenv("CXX");
  // Hidden, since all modules define the same names: shared memory of one must not be that of another.
  const std::string command =
      fmt::format("{} -std=c++17 -O1 -w -fvisibility=hidden -shared -fPIC -o '{}' '{}'",
                  cxx == nullptr ? "c++" : cxx, object.string(), file.string());
  if (std::system(command.c_str()) != 0)
    throw std::runtime_error("the emitted source did not compile as C++: " + file.string());
  library_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error(dlerror());
}

HostModule::~HostModule() {
  if (library_ != nullptr) dlclose(library_);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string HostModule::run(const Entry& entry, const Arguments& arguments, unsigned seed,
                            std::int32_t max_grid_y) const {
  using Run = const char* (*)(void*, const Arguments*, int, int, int, unsigned);
  const auto run = reinterpret_cast<Run>(dlsym(library_, "host_run"));
  void* const kernel = dlsym(library_, entry.passes.front().c_str());
  if (run == nullptr || kernel == nullptr) throw std::runtime_error("no entry " + entry.passes.front());
  const std::int32_t tiles = (arguments.n + entry.tile_n - 1) / entry.tile_n;
  const char* const fault =
      run(kernel, &arguments, entry.threads, entry.workers, std::min(tiles, max_grid_y), seed);
  return fault == nullptr ? std::string{} : std::string(fault);
}

}  // namespace sparsekiln::cuda
