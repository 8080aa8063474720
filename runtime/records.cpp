#include "runtime/records.h"

namespace sparsekiln {

// For now: the store keeps no records yet.
std::vector<Record> stored_records(const std::filesystem::path&) { return {}; }

}  // namespace sparsekiln
