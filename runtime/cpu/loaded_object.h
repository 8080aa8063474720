#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace sparsekiln::cpu {

/// An ELF object linked into this process by LLVM's ORC (JITLink); unloaded with this object.
class LoadedObject {
 public:
  /// The one of these very bytes that someone still holds, else a new one: attached layouts have one code.
  /// Thread-safe.
  [[nodiscard]] static std::shared_ptr<const LoadedObject> of(std::span<const std::byte> object);

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
