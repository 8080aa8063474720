#include "tests/runtime/cpu/remembered_object.h"

#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include <sparsekiln/digest.h>

#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/cpu/object.h"

namespace sparsekiln::cpu {

std::vector<std::byte> remembered_object(const std::string& module_text, const Target& target) {
  static const std::unique_ptr<cache::Store> store = [] {
    const char* const folder = std::getenv("SPARSEKILN_TEST_STORE");
    return folder == nullptr ? nullptr : std::make_unique<cache::Store>(folder);
  }();
  if (store == nullptr) return compile_object(module_text, target);
  cache::Identity identity;
  identity.add("what", "object of a test")
      .add("module", Digest::of(module_text).hex())
      .add("target", target.to_string())
      .add("compiler", compiler_digest())
      .add("llvm", compiler_version());
  const auto accept = [](std::span<const std::byte>) { return true; };
  return store->get_or_make(identity, accept, [&] { return compile_object(module_text, target); }).payload;
}

}  // namespace sparsekiln::cpu
