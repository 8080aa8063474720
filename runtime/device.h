#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <sparsekiln/binary.h>
#include <sparsekiln/error.h>

#include "compiler/launch_operands.h"

namespace sparsekiln {

/// The operands of one launch, already checked against the Binary's contract.
struct Launch : LaunchOperands {
  void* stream = nullptr;
  std::int32_t threads = 0;  ///< on the cpu: at most; 0: see threads.h
};

/// A Binary's code, resident on a device until this is destroyed.
class Module {
 public:
  virtual ~Module() = default;
  /// Where its kernels run, as TensorView::device.
  [[nodiscard]] virtual std::int32_t device() const = 0;
  /// Queues (GPU) or runs (cpu) one entry. No look-up, allocation, lock or synchronisation. On a GPU, on any
  /// thread but one where a context of another device is current. `launch.workspace` is there where the entry
  /// needs one.
  virtual void launch(std::size_t entry, const Launch& launch) const = 0;
  /// A workspace that this module keeps for `stream` (GPU) or for the calling thread (cpu), at least `bytes`
  /// large, 64-byte aligned, its counters zero; made on first use.
  [[nodiscard]] virtual void* workspace(void* stream, std::int64_t bytes) const = 0;
  /// Brings the weight from the order of its layout into the one that the code reads; both dense and on the
  /// device. Only for a Binary whose contract asks for it: throws `driver` where this device knows no such
  /// order.
  virtual void pack(const void* w, void* packed) const;
  /// The same code with the tables of another layout: `binary` is this module's but for what attach
  /// fills in. Throws `driver` where memory is short, or where this device attaches no layouts.
  [[nodiscard]] virtual std::unique_ptr<Module> relayout(std::shared_ptr<const Binary> binary) const;
};

/// `driver`: the device takes the code of a Binary in no form that it has. Compiled again, for the driver
/// that is there, it may be taken.
class CodeRefused : public Error {
 public:
  CodeRefused(const std::string& message, std::string log = {})
      : Error(ErrorKind::driver, message, std::move(log)) {}
};

/// Throws `invalid_argument` for what all layouts share, see Binary::lacks_layout.
void check_has_layout(const Binary& binary);

/// What tells one device's speed from another's.
struct About {
  std::string name;              ///< "NVIDIA H100 80GB HBM3", "AMD EPYC 7763 64-Core Processor"
  std::string driver;            ///< what its driver takes at most, "CUDA 13.0"; empty on the cpu
  std::int64_t cache_bytes = 0;  ///< L2 of a GPU, last level of a processor; 0: unknown
};

/// How launches are timed on a device, see Sampler, rotate and Tuner.
struct Timing {
  std::string_view policy;  ///< part of an Environment: a change of how time is taken makes other records
  std::string_view clock;   ///< what measures: "steady clock"
  double sample_ms = 1;     ///< a sample's launches last about so long
  int fewest_launches = 1;  ///< of a sample
  bool cold = false;        ///< operands are rotated, so that the last-level cache never has them
  bool measures = true;     ///< false: times say nothing, as those of an emulator
};

/// Takes the time of launches on one device.
class Stopwatch {
 public:
  using Launch = std::function<void(void* stream)>;
  virtual ~Stopwatch() = default;
  /// The time of so many launches in a row, each queued on the stream that `launch` is given.
  [[nodiscard]] virtual double milliseconds(const Launch& launch, int launches) const = 0;
};

/// Where kernels run. The memory and timing functions serve tools and tests; pointers are the device's.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual Target target() const = 0;
  [[nodiscard]] virtual std::string description()
      const = 0;  ///< for people: "NVIDIA H100 80GB HBM3, driver 580.95"
  [[nodiscard]] virtual About about() const = 0;
  [[nodiscard]] virtual Timing timing() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Stopwatch> stopwatch() const = 0;
  /// How many workers of a schedule for `target` run at once.
  [[nodiscard]] virtual std::int32_t workers_at_once(const Target& target) const { return target.workers; }
  /// Clusters of `ctas` CTAs that it holds at once, each CTA on a multiprocessor of its own; 0: none, or not
  /// known. Takes some milliseconds.
  [[nodiscard]] virtual std::int32_t active_clusters(std::int32_t ctas) const;
  /// Throws CodeRefused, or another Error.
  [[nodiscard]] virtual std::unique_ptr<Module> load(std::shared_ptr<const Binary> binary) const = 0;

  [[nodiscard]] virtual void* allocate(std::size_t bytes) const = 0;  ///< 256-byte aligned
  virtual void release(void* memory) const noexcept = 0;
  virtual void copy_in(void* to, const void* from, std::size_t bytes) const = 0;  ///< host → device, blocking
  virtual void copy_out(void* to, const void* from,
                        std::size_t bytes) const = 0;  ///< device → host, blocking
  virtual void synchronize() const = 0;  ///< throws `driver` where anything queued before failed
};

/// Memory of a device, owned.
class DeviceMemory {
 public:
  DeviceMemory(std::shared_ptr<const Device> device, std::size_t bytes)
      : device_(std::move(device)), data_(device_->allocate(bytes == 0 ? 1 : bytes)), bytes_(bytes) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { device_->release(data_); }

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  void copy_in(const void* from) { device_->copy_in(data_, from, bytes_); }
  void copy_out(void* to) const { device_->copy_out(to, data_, bytes_); }

 private:
  std::shared_ptr<const Device> device_;
  void* data_;
  std::size_t bytes_;
};

}  // namespace sparsekiln
