#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace sparsekiln::cpu {

/// An ELF object linked into this process by LLVM's ORC (JITLink); it goes with this.
class LoadedObject {
 public:
  /// Throws `driver` where the object cannot be linked.
  explicit LoadedObject(std::span<const std::byte> object);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  /// The address of a defined symbol. Throws `driver`.
  [[nodiscard]] void* symbol(const std::string& name) const;

 private:
  struct Linker;
  std::unique_ptr<Linker> linker_;
};

}  // namespace sparsekiln::cpu
