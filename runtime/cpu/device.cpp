#include "runtime/cpu/device.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>
#include <vector>

#include <fmt/format.h>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <sparsekiln/error.h>
#include <sparsekiln/tensor_view.h>
#include <sparsekiln/threads.h>

#include "compiler/cpu/call.h"
#include "compiler/cpu/level.h"
#include "compiler/cpu/packed_weight.h"
#include "compiler/cpu_levels.h"
#include "runtime/cpu/loaded_object.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/host_stopwatch.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::align_val_t kAlignment{256};

void* allocate_aligned(std::size_t bytes, std::align_val_t alignment = kAlignment) {
  void* memory = ::operator new(std::max<std::size_t>(bytes, 1), alignment, std::nothrow);
  if (memory == nullptr)
    throw Error(ErrorKind::driver, fmt::format("this machine has no {} bytes of memory to give", bytes));
  return memory;
}

/// Large scratch memory begins and ends with huge pages: packed activations are visited in the order of the
/// layout's columns, block by block, and each visit to another small page would miss the first TLB.
constexpr std::align_val_t kHugePage{std::size_t{2} << 20};
constexpr std::size_t kWorthHugePages = std::size_t{1} << 18;

/// Memory that a calling thread keeps for its launches of any kernel: a launch has returned before the next
/// one of the same thread starts, and other threads have their own.
class ThreadWorkspace {
 public:
  ~ThreadWorkspace() { release(); }
  void* at_least(std::size_t bytes) {
    if (bytes > bytes_) {
      release();
      constexpr auto kPage = static_cast<std::size_t>(kHugePage);
      const bool huge = bytes >= kWorthHugePages;
      const std::size_t whole = huge ? (bytes + kPage - 1) / kPage * kPage : bytes;
      alignment_ = huge ? kHugePage : kAlignment;
      memory_ = allocate_aligned(whole, alignment_);
      bytes_ = whole;
#if defined(__linux__)
      // Advice: without it the pages are small, and everything else is the same.
      if (huge) static_cast<void>(madvise(memory_, whole, MADV_HUGEPAGE));
#endif
    }
    return memory_;
  }

 private:
  void release() {
    ::operator delete(std::exchange(memory_, nullptr), alignment_);
    bytes_ = 0;
  }

  std::align_val_t alignment_ = kAlignment;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

using Pass = void (*)(const Call*, std::int32_t worker, std::int32_t batch_tile);

class CpuModule final : public Module {
 public:
  CpuModule(std::shared_ptr<const Binary> binary, std::shared_ptr<const LoadedObject> object)
      : binary_(std::move(binary)), object_(std::move(object)) {
    for (const Entry& entry : binary_->entries) {
      auto& passes = passes_.emplace_back();
      for (const std::string& name : entry.passes)
        passes.push_back(reinterpret_cast<Pass>(object_->symbol(name)));
    }
  }

  std::int32_t device() const override { return kHostDevice; }

  void launch(std::size_t entry, const Launch& launch) const override {
    const Entry& recipe = binary_->entries[entry];
    const std::int64_t tiles = recipe.batch_tiles(launch.n);
    if (tiles <= 0) return;
    // The thread's workspace may hold anything of another launch where this one has its counters.
    if (recipe.workspace.counter_bytes != 0)
      std::memset(launch.workspace, 0, static_cast<std::size_t>(recipe.workspace.counter_bytes));
    Call call = launch;
    call.tables = recipe.tables.bytes.data();
    const std::int32_t allowed = launch.threads != 0 ? launch.threads : threads();
    const Run run{&call, passes_[entry].data(), recipe.workers};
    ThreadPool::shared().run({Run::job, &run, static_cast<std::int32_t>(passes_[entry].size()),
                              tiles * recipe.workers, std::min(binary_->target.workers, allowed)});
  }

  void* workspace(void*, std::int64_t bytes) const override {
    thread_local ThreadWorkspace memory;
    return memory.at_least(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0)));
  }

  /// The image of the tables is read where the Binary has it.
  std::unique_ptr<Module> relayout(std::shared_ptr<const Binary> binary) const override {
    return std::make_unique<CpuModule>(std::move(binary), object_);
  }

  void pack(const void* w, void* packed) const override {
    if (binary_->plan.empty()) throw Error(ErrorKind::cache, "the binary has no config to pack a weight by");
    const OperandContract& operands = binary_->operands;
    const Config& config = binary_->plan.front().config;  // all ranges read one order; emit sees to it
    const RegisterTile tile =
        register_tile(level_of(binary_->target), operands.block.out, operands.dtype, config);
    pack_weight(operands.blocks, operands.block, operands.dtype, tile, w, packed);
  }

 private:
  struct Run {
    const Call* call;
    const Pass* passes;
    std::int32_t workers;
    static void job(const void* context, std::int32_t pass, std::int64_t number) {
      const Run& run = *static_cast<const Run*>(context);
      run.passes[pass](run.call, static_cast<std::int32_t>(number % run.workers),
                       static_cast<std::int32_t>(number / run.workers));
    }
  };

  std::shared_ptr<const Binary> binary_;
  std::shared_ptr<const LoadedObject> object_;
  std::vector<std::vector<Pass>> passes_;  ///< by entry
};

/// The name that Linux knows the processor by; empty where it does not say.
std::string read_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "cpu" : line.substr(colon + 2);
  }
  return "cpu";
}

/// Read once: the system takes its time over that file where there are many cores.
const std::string& model_name() {
  static const std::string name = read_model_name();
  return name;
}

std::int64_t last_level_cache() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = ::sysconf(level); bytes > 0) return bytes;
#endif
  return 0;
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::int32_t workers) : target_(Target::host()) {
    if (workers > 0) target_.workers = workers;
  }

  Target target() const override { return target_; }
  std::string description() const override {
    return fmt::format("{}, {}, {} thread{}", model_name(), target_.arch, target_.workers,
                       target_.workers == 1 ? "" : "s");
  }
  About about() const override { return {model_name(), {}, last_level_cache()}; }
  Timing timing() const override { return kHostTiming; }
  std::unique_ptr<Stopwatch> stopwatch() const override {
    return std::make_unique<HostStopwatch>([] {});  // a launch has ended when it returns
  }
  std::int32_t workers_at_once(const Target& target) const override {
    return std::min(target.workers, threads());
  }
  std::unique_ptr<Module> load(std::shared_ptr<const Binary> binary) const override {
    if (binary->target.kind != Target::Kind::cpu || !runs(target_.arch, binary->target.arch))
      throw Error(ErrorKind::driver, fmt::format("a binary for {} does not run on this machine, which is {}",
                                                 binary->target.to_string(), target_.arch));
    check_has_layout(*binary);
    auto object = LoadedObject::of(binary->code);
    return std::make_unique<CpuModule>(std::move(binary), std::move(object));
  }

  void* allocate(std::size_t bytes) const override { return allocate_aligned(bytes); }
  void release(void* memory) const noexcept override { ::operator delete(memory, kAlignment); }
  void copy_in(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  void copy_out(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  void synchronize() const override {}

 private:
  Target target_;
};

}  // namespace

std::shared_ptr<const Device> open_device(std::int32_t workers) {
  return std::make_shared<CpuDevice>(workers);
}

}  // namespace sparsekiln::cpu
