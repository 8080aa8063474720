#include "runtime/cpu/loaded_object.h"

#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>

#include <sparsekiln/digest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/cpu/object.h"
#include "system/deep_stack.h"
#include "system/executable_memory.h"

namespace sparsekiln::cpu {
namespace {

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorKind::driver, fmt::format("loading a kernel on the cpu: {}", why));
}

void check_executable_memory() {
  if (const std::string why = why_no_executable_memory(); !why.empty())
    fail(
        fmt::format("the system gives this process no executable memory ({}), which compiled kernels need; "
                    "MemoryDenyWriteExecute=no of its systemd unit, execmem of its SELinux policy, or a CUDA "
                    "target, would work",
                    why));
}

}  // namespace

struct LoadedObject::Linker {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::mutex mutex;
  std::string causes;  ///< what a look-up does not repeat: it says only that a symbol has no address

  void load(std::span<const std::byte> object) {
    initialise_llvm();
    auto made = llvm::orc::LLJITBuilder().create();
    if (!made) fail(llvm::toString(made.takeError()));
    jit = std::move(*made);
    jit->getExecutionSession().setErrorReporter([this](llvm::Error error) {
      const std::lock_guard lock(mutex);
      causes += (causes.empty() ? "" : "; ") + llvm::toString(std::move(error));
    });
    const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
    if (auto error = jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(bytes, "kernel.o")))
      fail(llvm::toString(std::move(error)));
  }

  /// Links the object when it is called first.
  void* find(const std::string& name) {
    auto address = jit->lookup(name);
    if (address) return address->toPtr<void*>();
    const std::string missing = llvm::toString(address.takeError());
    check_executable_memory();
    const std::lock_guard lock(mutex);
    fail(fmt::format("its symbol '{}' has no address: {}", printable(name),
                     causes.empty() ? missing : causes));
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
