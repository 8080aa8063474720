// Makes stores and packs that only an attacker or a defect would make, with correct checksums.
//
//   plant pack FILE FIELD=VALUE…      a pack of one entry with that identity
//   plant store FOLDER FIELD=VALUE…   puts such an entry into a store
//   plant exchange PACK OUT           a pack in which two Binaries have each other's payload; prints the keys

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.h"
#include "cache/pack.h"
#include "cache/store.h"

namespace {

namespace cache = sparsekiln::cache;

cache::Identity identity_of(const std::vector<std::string_view>& fields) {
  cache::Identity identity;
  for (const std::string_view field : fields) {
    const std::size_t equals = field.find('=');
    identity.add(field.substr(0, equals), field.substr(equals + 1));
  }
  return identity;
}

int exchange_payloads(const std::string& from, const std::string& to) {
  const auto pack = cache::Pack::open(from);
  std::vector<cache::StoredEntry> entries;
  for (const cache::PackRow& row : pack->rows()) entries.push_back(pack->entry(row));
  if (entries.size() < 2) return 1;
  std::swap(entries[0].payload, entries[1].payload);
  cache::PackEntries exchanged;
  for (const cache::StoredEntry& entry : entries)
    exchanged.emplace(entry.identity.key(), cache::encode(entry.identity, entry.payload));
  cache::write_pack(to, exchanged);
  for (std::size_t i = 0; i < 2; ++i) std::puts(entries[i].identity.key().hex().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) return 2;
  const std::string file(arguments[1]);
  if (arguments[0] == "exchange") return exchange_payloads(file, std::string(arguments[2]));
  const cache::Identity identity = identity_of({arguments.begin() + 2, arguments.end()});
  const std::vector<std::byte> payload(3);
  if (arguments[0] == "pack")
    cache::write_pack(file, {{identity.key(), cache::encode(identity, payload)}});
  else
    cache::Store(file).put(identity, payload);
  return 0;
}
