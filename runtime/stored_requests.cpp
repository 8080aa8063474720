#include "runtime/stored_requests.h"

#include <charconv>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "cache/read_only_store.h"
#include "cache/store.h"
#include "compiler/build.h"
#include "runtime/stored_layout.h"

namespace sparsekiln {
namespace {

/// The fields of an identity by name. `at` throws std::out_of_range where there is none of it.
using Fields = std::map<std::string, std::string, std::less<>>;

bool flag(const Fields& fields, const char* name) { return fields.at(name) == "yes"; }

/// What identity_of writes as ROWSxCOLS.
std::pair<std::int64_t, std::int64_t> pair_of(const std::string& text) {
  const std::size_t cross = text.find('x');
  std::pair<std::int64_t, std::int64_t> pair;
  if (cross == std::string::npos) throw std::out_of_range("x");
  std::from_chars(text.data(), text.data() + cross, pair.first);
  std::from_chars(text.data() + cross + 1, text.data() + text.size(), pair.second);
  return pair;
}

/// identity_of (runtime/request.h) read backwards, but for the layout.
StoredRequest kernel_of(const Fields& fields) {
  StoredRequest seen;
  Options& options = seen.options;
  options.operation = parse_operation(fields.at("operation"));
  std::tie(options.out_features, options.in_features) = pair_of(fields.at("features"));
  options.block = parse_block_shape(fields.at("block"));
  options.batch = parse_batch(fields.at("batch"));
  options.dtype = parse_dtype(fields.at("dtype"));
  options.out_dtype = parse_dtype(fields.at("out_dtype"));
  options.math = parse_math(fields.at("math"));
  options.order = parse_activation_order(fields.at("order"));
  options.strict_absent = flag(fields, "strict_absent");
  options.epilogue = parse_epilogue(fields.at("epilogue"));
  options.derivative = parse_activation(fields.at("derivative"));
  options.gates = flag(fields, "gates");
  options.bias_gradient = flag(fields, "bias_gradient");
  options.gate_gradient = flag(fields, "gate_gradient");
  options.alignment = static_cast<std::int32_t>(std::stoi(fields.at("alignment")));
  options.target = fields.at("target");
  if (fields.at("layout") == "attached") options.specialization = Specialization::attached;
  seen.plan = parse_plan(fields.at("plan"));
  seen.current = fields.at("compiler") == compiler_digest();
  return seen;
}

/// The layout of a digest, from what the store keeps of it.
Layout layout_of(const cache::ReadOnlyStore& store, const std::string& digest) {
  const auto payload = store.get(layout_identity(digest));
  if (!payload) throw Error(ErrorKind::cache, fmt::format("its layout {} is not in the store", digest));
  Layout layout = deserialize_layout(*payload);
  if (layout.digest().hex() != digest)
    throw Error(ErrorKind::cache, fmt::format("what is stored as its layout {} is another", digest));
  return layout;
}

}  // namespace

StoredRequest stored_request(const cache::ReadOnlyStore& store, const cache::Identity& identity) {
  const Fields fields(identity.fields().begin(), identity.fields().end());
  try {
    StoredRequest kernel = kernel_of(fields);
    kernel.layout = kernel.options.specialization == Specialization::attached
                        ? Layout::from_mask(1, 1, std::vector<std::uint8_t>{1})
                        : layout_of(store, fields.at("layout"));
    return kernel;
  } catch (const std::logic_error&) {  // a field is missing, or no number
    throw Error(ErrorKind::cache, "its identity is not one that this version writes");
  }
}

StoredRequests stored_requests_in(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder.empty() ? cache::Store::default_folder() : folder;
  StoredRequests seen;
  std::error_code unknown;
  if (path.empty() || !std::filesystem::exists(path, unknown)) return seen;
  const std::shared_ptr<const cache::ReadOnlyStore> store = cache::open_read_only_store(path);
  for (const cache::Identity& identity : store->identities()) {
    const auto& fields = identity.fields();
    if (fields.empty() || fields.front() != std::pair<std::string, std::string>("what", "binary")) continue;
    try {
      seen.kernels.push_back(stored_request(*store, identity));
    } catch (const Error& error) {
      seen.left_out.push_back(fmt::format("{}: {}", identity.key().hex(), error.what()));
    }
  }
  return seen;
}

}  // namespace sparsekiln
