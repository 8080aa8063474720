#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/compile.h>

#include "tools/answer.h"

namespace sparsekiln::tools {

/// The launch recipe and the resources of each entry: what `resources` is in every answer.
[[nodiscard]] Json describe_entries(const Binary& binary);

/// The variables of a Binary's data, with their bytes.
[[nodiscard]] Json describe_data(const Binary& binary);
[[nodiscard]] std::int64_t data_bytes(const Binary& binary);
/// The name of the file that holds one of them.
[[nodiscard]] std::string data_file(std::string_view kernel, const ModuleData& data);

/// What `compile` and `run` say of a Binary: problem, target, origin, config, resources, compiler and its
/// log.
[[nodiscard]] Json describe_binary(const Binary& binary, From from, const Digest& key, double compile_ms);

/// The same in a few lines for people.
[[nodiscard]] std::string summarize_binary(const Binary& binary, From from, const Digest& key,
                                           double compile_ms);

}  // namespace sparsekiln::tools
