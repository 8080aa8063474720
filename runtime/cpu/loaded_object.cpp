#include "runtime/cpu/loaded_object.h"

#include <map>
#include <mutex>

#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>

#include <sparsekiln/digest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/cpu/object.h"
#include "system/deep_stack.h"

namespace sparsekiln::cpu {
namespace {

[[noreturn]] void fail(const std::string& what, llvm::Error error) {
  throw Error(ErrorKind::driver, fmt::format("{}: {}", what, llvm::toString(std::move(error))));
}

}  // namespace

struct LoadedObject::Linker {
  std::unique_ptr<llvm::orc::LLJIT> jit;

  void load(std::span<const std::byte> object) {
    initialise_llvm();
    auto made = llvm::orc::LLJITBuilder().create();
    if (!made) fail("loading a cpu kernel", made.takeError());
    jit = std::move(*made);
    const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
    if (auto error = jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(bytes, "kernel.o")))
      fail("loading a cpu kernel", std::move(error));
  }

  /// Links the object when it is called first.
  void* find(const std::string& name) {
    auto address = jit->lookup(name);
    if (!address) fail(fmt::format("the cpu kernel's symbol '{}'", printable(name)), address.takeError());
    return address->toPtr<void*>();
  }
};

LoadedObject::LoadedObject(std::span<const std::byte> object) : linker_(std::make_unique<Linker>()) {
  on_deep_stack([&] { linker_->load(object); });
}

LoadedObject::~LoadedObject() = default;

std::shared_ptr<const LoadedObject> LoadedObject::of(std::span<const std::byte> object) {
  static std::mutex mutex;
  static std::map<Digest, std::weak_ptr<const LoadedObject>> loaded;
  const Digest digest = Digest::of(object);
  const std::lock_guard lock(mutex);
  if (auto found = loaded[digest].lock()) return found;
  std::erase_if(loaded, [](const auto& row) { return row.second.expired(); });
  auto made = std::make_shared<const LoadedObject>(object);
  loaded.insert_or_assign(digest, made);
  return made;
}

void* LoadedObject::symbol(const std::string& name) const {
  void* address = nullptr;
  on_deep_stack([&] { address = linker_->find(name); });
  return address;
}

}  // namespace sparsekiln::cpu
