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

/// Stands in front of the emitted source, in place of ptx.cuh and ptx_mma.cuh.
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
struct __align__(16) uint4 { unsigned x, y, z, w; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct __align__(8) uint2 { unsigned x, y; };
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
struct Dim { unsigned x = 0, y = 0; };
static Dim threadIdx, blockIdx, gridDim;

namespace shim {
struct Copy { void* to; const void* from; int bytes; int size = 16; };
struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[128 * 1024]};
  bool ended = false;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  std::vector<unsigned> written;  // addresses that it copied to, in order
  struct { unsigned address, a[4], b[2]; } given[2];  // to its warp, in turns: what was given last is still read
  int turn = 0;
};
static std::vector<Thread> threads;
static ucontext_t scheduler;
static Thread* running;
static const char* fault;
alignas(128) static char dynamic[256 * 1024];
static bool early;  // copies arrive at once; else when they are waited for, and not before

/// Addresses of shared memory are distances from dynamic memory, those of other arrays too.
inline char* at(unsigned address) { return dynamic + static_cast<int>(address); }
/// Notes what is written to dynamic memory.
inline void note_write(unsigned address) {
  if (address < sizeof(dynamic)) running->written.push_back(address);
}

inline void pause() { swapcontext(&running->context, &scheduler); }
inline void finish(const Copy& copy) {
  if (copy.bytes > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
  std::memset(reinterpret_cast<char*>(copy.to) + copy.bytes, 0, static_cast<std::size_t>(copy.size - copy.bytes));
}
inline void aligned(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) fault = "a 16-byte access is misaligned";
}

/// Stops until all lanes have given, and says where they did.
inline int exchange() { const int turn = running->turn; running->turn = 1 - turn; pause(); return turn; }
inline Thread& lane(int number) { return threads[threadIdx.x / 32 * 32 + static_cast<unsigned>(number)]; }
/// Addresses of 16 bytes that the banks do not serve at once.
inline bool conflict(const unsigned* address, int count) {
  unsigned used = 0;
  for (int i = 0; i < count; ++i) used |= 1u << (address[i] / 16 % 8);
  return __builtin_popcount(used) != count;
}
template <bool kTransposed, int kMatrices>
void load_matrices(unsigned (&words)[kMatrices], unsigned address) {
  running->given[running->turn].address = address;
  const int turn = exchange();
  const int self = static_cast<int>(threadIdx.x) % 32;
  for (int m = 0; m < kMatrices; ++m) {
    unsigned rows[8];
    for (int i = 0; i < 8; ++i) rows[i] = lane(m * 8 + i).given[turn].address;
    if (conflict(rows, 8)) fault = "a matrix load meets a bank conflict";
    for (int half = 0; half < 2; ++half) {
      const char* const from = kTransposed ? dynamic + rows[self % 4 * 2 + half] + self / 4 * 2
                                           : dynamic + rows[self / 4] + self % 4 * 4 + half * 2;
      std::memcpy(reinterpret_cast<char*>(&words[m]) + half * 2, from, 2);
    }
  }
}
inline float exchanged(float value, int lanes) {
  std::memcpy(&running->given[running->turn].address, &value, 4);
  const int turn = exchange();
  std::memcpy(&value, &lane(static_cast<int>(threadIdx.x) % 32 ^ lanes).given[turn].address, 4);
  return value;
}
inline float half(unsigned bits) {
  const int exponent = bits >> 10 & 31;
  const float fraction = static_cast<float>(bits & 1023) / 1024;
  const float value = exponent == 0 ? std::ldexp(fraction, -14)
                      : exponent == 31 ? (fraction == 0 ? INFINITY : NAN) : std::ldexp(1 + fraction, exponent - 15);
  return bits >> 15 & 1 ? -value : value;
}
inline float bits_to_float(unsigned bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline unsigned float_to_bits(float value) { unsigned bits; std::memcpy(&bits, &value, 4); return bits; }
inline unsigned to_half(float value) {  // to nearest even: the answer is at most one step from a truncated one
  const unsigned sign = float_to_bits(value) >> 16 & 0x8000;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  unsigned low = 0, high = 0x7c00;
  while (high - low > 1) (half((low + high) / 2) <= magnitude ? low : high) = (low + high) / 2;
  const double middle = high == 0x7c00 ? 65520.0 : (double(half(low)) + half(high)) / 2;
  return sign | (magnitude > middle || (magnitude == middle && low % 2 == 1) ? high : low);
}
inline unsigned to_bf16(float value) {
  const unsigned bits = float_to_bits(value);
  return std::isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
/// Element k of a row of A or a column of B. By the PTX ISA's tables, lane 4 · row + word holds word `word` of
/// its first 16 bytes of k in one register, and of its second in another.
template <int kPerWord, class Decode>
void mma(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], Decode decode) {
  for (int i = 0; i < 4; ++i) running->given[running->turn].a[i] = a[i];
  for (int i = 0; i < 2; ++i) running->given[running->turn].b[i] = b[i];
  const int turn = exchange();
  const int self = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = self / 4 + i / 2 * 8;
    const int column = self % 4 * 2 + i % 2;
    for (int k = 0; k < 8 * kPerWord; ++k) {
      const int word = k / kPerWord % 4;
      const int second = k / kPerWord / 4;
      const unsigned left = lane(row % 8 * 4 + word).given[turn].a[row / 8 + 2 * second];
      const unsigned right = lane(column * 4 + word).given[turn].b[second];
      sums[i] = std::fma(decode(left, k % kPerWord), decode(right, k % kPerWord), sums[i]);
    }
  }
}
}  // namespace shim

inline std::size_t __cvta_generic_to_shared(const void* at) {
  return static_cast<std::size_t>(static_cast<const char*>(at) - shim::dynamic);
}
inline void __syncthreads() { shim::pause(); }
template <class Value>
Value __shfl_sync(unsigned, Value value, int from) {
  std::memcpy(&shim::running->given[shim::running->turn].address, &value, 4);
  const int turn = shim::exchange();
  std::memcpy(&value, &shim::lane(from & 31).given[turn].address, 4);
  return value;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __float2int_rn(float value) { return static_cast<int>(std::nearbyint(value)); }
inline float __int_as_float(int bits) { return shim::bits_to_float(static_cast<unsigned>(bits)); }
inline int __float_as_int(float value) { return static_cast<int>(shim::float_to_bits(value)); }
inline unsigned __float_as_uint(float value) { return shim::float_to_bits(value); }
inline float __uint_as_float(unsigned bits) { return shim::bits_to_float(bits); }

namespace sparsekiln { namespace ptx {
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
inline unsigned dynamic_shared() { return 0; }
template <int kTo, int kFrom>
inline void copy_async(unsigned to, const void* from, int bytes = 16) {
  to += kTo;
  from = static_cast<const char*>(from) + kFrom;
  shim::note_write(to);
  shim::aligned(shim::at(to));
  if (bytes > 0) shim::aligned(from);
  if (shim::early) shim::finish({shim::at(to), from, bytes});
  else shim::running->open.push_back({shim::at(to), from, bytes});
}
template <int kBytes, int kTo, int kFrom>
inline void copy_async_part(unsigned to, const void* from, int bytes) {
  from = static_cast<const char*>(from) + kFrom;
  if (bytes > 0 && reinterpret_cast<std::uintptr_t>(from) % kBytes != 0) shim::fault = "a copy is misaligned";
  if (shim::early) shim::finish({shim::at(to + kTo), from, bytes, kBytes});
  else shim::running->open.push_back({shim::at(to + kTo), from, bytes, kBytes});
}
template <class Value>
Value kept(Value value) { return value; }
inline void store_shared(unsigned to, const uint4& value) {
  shim::note_write(to);
  std::memcpy(shim::at(to), &value, 16);
}
inline void store_shared(unsigned to, const float4& value) {
  shim::aligned(shim::at(to));
  std::memcpy(shim::at(to), &value, 16);
}
template <int kOffset>
void load_shared(unsigned (&words)[4], unsigned from) { std::memcpy(words, shim::dynamic + from + kOffset, 16); }
template <int kOffset, int kMatrices>
void load_matrices(unsigned (&words)[kMatrices], unsigned address) { shim::load_matrices<false>(words, address + kOffset); }
template <int kOffset, int kMatrices>
void load_columns(unsigned (&words)[kMatrices], unsigned address) { shim::load_matrices<true>(words, address + kOffset); }
template <int kOffset>
void load_word(unsigned& word, unsigned address) { std::memcpy(&word, shim::dynamic + address + kOffset, 4); }
template <int kOffset>
void load_words(unsigned& first, unsigned& second, unsigned address) {
  if ((address + kOffset) % 8 != 0) shim::fault = "a vector load is misaligned";
  load_word<kOffset>(first, address);
  load_word<kOffset + 4>(second, address);
}
template <int kLanes>
float exchanged(float value) { return shim::exchanged(value, kLanes); }
inline void mma_f16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  shim::mma<2>(sums, a, b, [](unsigned word, int i) { return shim::half(word >> (16 * i) & 0xffff); });
}
inline void mma_bf16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  shim::mma<2>(sums, a, b, [](unsigned word, int i) { return shim::bits_to_float(word >> (16 * i) << 16); });
}
inline void mma_tf32(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  shim::mma<1>(sums, a, b, [](unsigned word, int) { return shim::bits_to_float(word); });
}
/// The value of a finite float of 8 bits.
inline float float8(unsigned bits, int fraction_bits) {
  const int exponent = static_cast<int>(bits >> fraction_bits & ((128u >> fraction_bits) - 1));
  const int fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1));
  const int significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  const int bias = (1 << (6 - fraction_bits)) - 1;
  const auto value = static_cast<float>(std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - fraction_bits));
  return (bits & 0x80) != 0 ? -value : value;
}
template <int kFractionBits>
void multiply_float8(float (&products)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  for (float& product : products) product = 0;
  shim::mma<4>(products, a, b, [](unsigned word, int i) { return float8(word >> (8 * i) & 0xff, kFractionBits); });
}
inline void multiply_e4m3(float (&products)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  multiply_float8<3>(products, a, b);
}
inline void multiply_e5m2(float (&products)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  multiply_float8<2>(products, a, b);
}
inline void mma_s8(int (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  float products[4] = {};
  shim::mma<4>(products, a, b, [](unsigned word, int i) {
    return static_cast<float>(static_cast<signed char>(word >> (8 * i) & 0xff));
  });
  for (int i = 0; i < 4; ++i) sums[i] += static_cast<int>(products[i]);
}
inline unsigned round_tf32(unsigned value) { return (value + 0x1000) & ~0x1fffu; }
inline unsigned pack_f16(float low, float high) { return shim::to_half(low) | shim::to_half(high) << 16; }
inline unsigned pack_bf16(float low, float high) { return shim::to_bf16(low) | shim::to_bf16(high) << 16; }
inline float4 load_shared(unsigned from) {
  shim::aligned(shim::at(from));
  return *reinterpret_cast<const float4*>(shim::at(from));
}
inline void load_shared(float (&values)[1], unsigned from) { std::memcpy(values, shim::at(from), 4); }
template <class Word, int kWords>
void store_global(void* at, const Word (&words)[kWords]) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(words) != 0) shim::fault = "a vector store is misaligned";
  std::memcpy(at, words, sizeof(words));
}
template <class Word, int kWords>
void load_global(const void* at, Word (&words)[kWords]) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(words) != 0) shim::fault = "a vector load is misaligned";
  std::memcpy(words, at, sizeof(words));
}
inline float unpack_f16(unsigned bits) { return shim::half(bits & 0xffff); }
template <class Word, int kWords>
void store_past(void* at, const Word (&words)[kWords]) { store_global(at, words); }
template <int kWords>
void load_relaxed(const float* at, float (&words)[kWords]) { load_global(at, words); }
inline unsigned add_acquire_release(unsigned* counter, unsigned number) {
  const unsigned before = *counter;
  *counter += number;
  return before;
}
inline void prefetch_line(const void*) {}
inline void wait_for_earlier_launches() {}
inline void let_next_launch_begin() {}
}}  // namespace sparsekiln::ptx
)shim";

constexpr const char* kRunner = R"shim(
struct HostArguments { const void* x; const void* w; void* y; void* workspace; int n; long long xs, ys; };
using HostKernel = void (*)(const void*, const void*, void*, void*, int, long long, long long);
static HostKernel host_kernel;
static const HostArguments* host_arguments;
static void host_thread() {
  const HostArguments& a = *host_arguments;
  host_kernel(a.x, a.w, a.y, a.workspace, a.n, a.xs, a.ys);
  shim::running->ended = true;
  shim::pause();
}
static void host_cta(int threads, unsigned order) {
  std::memset(shim::dynamic, 0xff, sizeof(shim::dynamic));
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
  for (std::size_t first = 0; first < shim::threads.size(); first += 8)
    for (std::size_t i = 0; i < shim::threads[first].written.size(); ++i) {
      unsigned addresses[8];
      for (std::size_t t = 0; t < 8; ++t) {
        const auto& written = shim::threads[first + t].written;
        if (written.size() != shim::threads[first].written.size())
          shim::fault = "8 neighbouring threads do not copy alike";
        else
          addresses[t] = written[i];
      }
      if (shim::fault == nullptr && shim::conflict(addresses, 8)) shim::fault = "a copy meets a bank conflict";
    }
}
extern "C" __global__ const char* host_run(HostKernel kernel, const HostArguments* arguments, int threads, int grid_x, int grid_y,
                                unsigned seed, bool early) {
  host_kernel = kernel;
  host_arguments = arguments;
  shim::fault = nullptr;
  shim::early = early;
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
std::string without_ptx(std::string text) {
  for (const char* const section : {"// ---- ptx.cuh\n", "// ---- ptx_mma.cuh\n"}) {
    const std::size_t begin = text.find(section);
    if (begin != std::string::npos) text.erase(begin, text.find("// ---- ", begin + 1) - begin);
  }
  return text;
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
      fmt::format("{} -std=c++20 -O1 -w -fno-strict-aliasing -fvisibility=hidden -shared -fPIC -o '{}' '{}'",
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

std::string HostModule::run(const Entry& entry, const Arguments& arguments, unsigned seed, Copies copies,
                            std::int32_t max_grid_y) const {
  using Run = const char* (*)(void*, const Arguments*, int, int, int, unsigned, bool);
  const auto run = reinterpret_cast<Run>(dlsym(library_, "host_run"));
  void* const kernel = dlsym(library_, entry.passes.front().c_str());
  if (run == nullptr || kernel == nullptr) throw std::runtime_error("no entry " + entry.passes.front());
  const std::int32_t tiles = (arguments.n + entry.tile_n - 1) / entry.tile_n;
  const char* const fault = run(kernel, &arguments, entry.threads, entry.workers, std::min(tiles, max_grid_y),
                                seed, copies == Copies::early);
  return fault == nullptr ? std::string{} : std::string(fault);
}

}  // namespace sparsekiln::cuda
