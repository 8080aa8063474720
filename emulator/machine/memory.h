#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sparsekiln::emulator {

/// Addresses as a program uses them. Global addresses are numbers of their own, never the host's: a host that
/// dereferences one faults. Generic addresses are global ones, or are in one of the windows.
inline constexpr std::uint64_t kSharedWindow = 0x0100'0000'0000;  ///< generic address of shared address 0
inline constexpr std::uint64_t kLocalWindow = 0x0200'0000'0000;
inline constexpr std::uint64_t kParamWindow = 0x0300'0000'0000;  ///< of a kernel's parameters
inline constexpr std::uint64_t kWindowBytes = 0x0001'0000'0000;
inline constexpr std::uint64_t kGlobalBase = 0x0700'0000'0000;
inline constexpr std::uint64_t kConstantBase = 0x0600'0000'0000;  ///< of .const variables
inline constexpr std::uint64_t kConstantBytes = kGlobalBase - kConstantBase;
/// The first shared address of a block: 0 stays null.
inline constexpr std::uint32_t kSharedBase = 1024;

class Shadow;
class AllocationFootprint;

/// One piece of device memory.
struct Allocation {
  Allocation();
  ~Allocation();

  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::unique_ptr<std::byte[]> data;
  bool constant = false;                     ///< of a .const variable: read by ld.const only
  std::string name;                          ///< of a variable; empty for cuMemAlloc
  std::unique_ptr<Shadow> shadow;            ///< null for constants, which count as written
  AllocationFootprint* footprint = nullptr;  ///< of the launch that runs, if it is recorded
};

/// The memory of one context. Allocations are far apart, so that an access beyond one end does not reach the
/// next. Thread-safe; a running launch only looks up.
class GlobalMemory {
 public:
  /// Addresses begin at `base`: memories of one process get different ones, so that an address tells which is
  /// meant.
  explicit GlobalMemory(std::uint64_t capacity, std::uint64_t base = kGlobalBase);
  ~GlobalMemory();

  /// 256-byte aligned; nothing written. Null where the capacity does not suffice. 0 bytes are refused by
  /// callers.
  [[nodiscard]] Allocation* allocate(std::uint64_t bytes, bool constant = false, std::string name = {});
  /// False where `address` is not the start of an allocation.
  bool release(std::uint64_t address);
  /// The allocation that holds `address`; null where none does.
  [[nodiscard]] Allocation* find(std::uint64_t address) const;

  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t used() const;
  [[nodiscard]] std::size_t allocations() const;

  /// The host side of cuMemcpy and cuMemset; false if the range is not within one allocation. Bytes that
  /// are written count as written; bytes that are read may be unwritten.
  bool write(std::uint64_t address, const void* from, std::uint64_t bytes);
  bool read(std::uint64_t address, void* to, std::uint64_t bytes) const;
  bool fill(std::uint64_t address, std::uint8_t value, std::uint64_t bytes);
  /// A copy within the device; false if a range is not within one allocation. Unwritten bytes stay unwritten
  /// at their new address. Ranges may overlap.
  bool copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes);

  /// All allocations by address, for a launch; they stay where they are until released.
  [[nodiscard]] std::vector<Allocation*> sorted() const;

 private:
  [[nodiscard]] Allocation* find_locked(std::uint64_t address) const;
  /// Host bytes of a range in one allocation, else null.
  [[nodiscard]] std::byte* range(std::uint64_t address, std::uint64_t bytes, bool writes) const;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<Allocation>> allocations_;
  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::uint64_t next_;
  std::uint64_t next_constant_ = kConstantBase;
};

}  // namespace sparsekiln::emulator
