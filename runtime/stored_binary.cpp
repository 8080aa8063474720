#include "runtime/stored_binary.h"

#include <algorithm>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/computation_fields.h"
#include "runtime/request.h"

namespace sparsekiln {

namespace {

[[noreturn]] void refuse(const std::string& wrong) {
  throw Error(ErrorKind::cache, "a stored binary is of another kernel: " + wrong);
}

/// What the code is for, by its own account, against what the entry is.
void check_fields(const cache::Identity& identity, const Binary& binary) {
  for (const auto& [name, value] : stated_fields(binary.operands, binary.target, binary.plan)) {
    const auto& fields = identity.fields();
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& one) { return one.first == name; });
    if (field == fields.end()) refuse(fmt::format("its entry does not say its {}", name));
    if (field->second != value)
      refuse(
          fmt::format("its {} is {}, and the entry's {}", name, printable(value), printable(field->second)));
  }
  for (const ComputationField& field : computation_fields()) {
    if (field.stated(binary.operands)) continue;
    for (const auto& [name, value] : identity.fields())
      if (name == field.name) refuse(fmt::format("the entry says its {}, {}", name, printable(value)));
  }
}

}  // namespace

std::vector<std::byte> serialize_binary(const cache::Identity& identity, const Binary& binary,
                                        std::span<const StoredBinary> others) {
  return store_binary(identity.key(), binary, others);
}

std::vector<StoredBinary> stored_binaries(const cache::Identity& identity,
                                          std::span<const std::byte> payload) {
  std::vector<StoredBinary> binaries = stored_binaries(payload);
  if (const Digest owner = made_for(payload); owner != identity.key())
    refuse(fmt::format("it was made for the entry {}, and is that of {}", owner.hex(), identity.key().hex()));
  return binaries;
}

Binary deserialize_binary(const cache::Identity& identity, const StoredBinary& stored) {
  Binary binary = deserialize(stored);
  check_fields(identity, binary);
  return binary;
}

std::shared_ptr<const Binary> best_binary(const cache::Identity& identity, std::span<const std::byte> payload,
                                          const Toolchain& toolchain,
                                          const std::function<bool(const Binary&)>& serves,
                                          std::set<int>* versions) {
  std::vector<StoredBinary> held;
  try {
    held = stored_binaries(identity, payload);
  } catch (const Error&) {  // of another kernel, or none, although the checksum held: as good as absent
    return nullptr;
  }
  if (versions != nullptr)
    for (const StoredBinary& one : held) versions->insert(one.nvrtc);
  for (const StoredBinary& stored : loadable(held, toolchain)) try {
      auto binary = std::make_shared<const Binary>(deserialize_binary(identity, stored));
      if (serves(*binary)) return binary;
    } catch (const Error&) {  // the next one may be whole
    }
  return nullptr;
}

std::vector<Binary> deserialize_binaries(const cache::Identity& identity,
                                         std::span<const std::byte> payload) {
  std::vector<Binary> binaries;
  for (const StoredBinary& stored : stored_binaries(identity, payload))
    binaries.push_back(deserialize_binary(identity, stored));
  return binaries;
}

}  // namespace sparsekiln
