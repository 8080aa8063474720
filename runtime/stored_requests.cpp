#include "runtime/stored_requests.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/computation_fields.h"
#include "runtime/stored_layout.h"

namespace sparsekiln {
namespace {

/// The fields of an identity by name. `at` and `value_of` throw std::out_of_range where there is none of it.
using Fields = std::map<std::string, std::string, std::less<>>;

const std::string& value_of(const Fields& fields, std::string_view name) {
  const auto field = fields.find(name);
  if (field == fields.end()) throw std::out_of_range("no such field");
  return field->second;
}

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
  for (const ComputationField& field : computation_fields())
    if (!field.optional || fields.contains(field.name)) field.read(options, value_of(fields, field.name));
  std::tie(options.out_features, options.in_features) = pair_of(fields.at("features"));
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

/// A layout that an attached kernel may have: of one block, or of as many rows and columns of blocks as the
/// features take that are cut.
Layout any_layout(const Options& options) {
  const auto blocks_of = [](std::int64_t cut, std::int32_t side) {
    return static_cast<std::int32_t>(std::max<std::int64_t>((cut + side - 1) / side, 1));
  };
  std::int64_t of_rows = options.out_features;
  std::int64_t of_cols = options.in_features;
  if (options.convolution.transposed) std::swap(of_rows, of_cols);
  const std::int32_t rows = blocks_of(of_rows, options.block.out);
  const std::int32_t cols = blocks_of(of_cols, options.block.in);
  std::vector<std::int32_t> crow(static_cast<std::size_t>(rows) + 1);
  std::iota(crow.begin(), crow.end(), 0);
  std::vector<std::int32_t> col(static_cast<std::size_t>(rows));
  for (std::int32_t row = 0; row < rows; ++row) col[static_cast<std::size_t>(row)] = row % cols;
  return Layout::from_csr(rows, cols, std::move(crow), std::move(col));
}

}  // namespace

StoredRequest stored_request(const cache::ReadOnlyStore& store, const cache::Identity& identity) {
  const Fields fields(identity.fields().begin(), identity.fields().end());
  try {
    StoredRequest kernel = kernel_of(fields);
    kernel.layout = kernel.options.specialization == Specialization::attached
                        ? any_layout(kernel.options)
                        : layout_of(store, fields.at("layout"));
    return kernel;
  } catch (const std::logic_error&) {  // a field is missing
    throw Error(ErrorKind::cache, "its identity is not one that this version writes");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    throw Error(ErrorKind::cache,
                fmt::format("its identity is not one that this version writes: {}", error.what()));
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
