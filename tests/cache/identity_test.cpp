#include "cache/identity.h"

#include <set>

#include <doctest/doctest.h>

#include "scratch_folder.h"

using sparsekiln::cache::Identity;

TEST_CASE("an identity that differs in one field has another key") {
  std::set<std::string> keys{sample_identity().key().hex()};
  const auto fields = sample_identity().fields();
  for (std::size_t changed = 0; changed < fields.size(); ++changed) {
    Identity other_value, other_name, one_less;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto& [name, value] = fields[i];
      other_value.add(name, i == changed ? value + "x" : value);
      other_name.add(i == changed ? name + "x" : name, value);
      if (i != changed) one_less.add(name, value);
    }
    for (const Identity& other : {other_value, other_name, one_less}) {
      CHECK_FALSE(other == sample_identity());
      CHECK(keys.insert(other.key().hex()).second);
    }
  }
}

TEST_CASE("fields whose texts are the same when joined are distinguished") {
  const std::vector<Identity> alike = {
      Identity().add("a", "b=c"),
      Identity().add("a=b", "c"),
      Identity().add("a", "b\n1 1 c=d"),
      Identity().add("a", "b").add("c", "d"),
      Identity().add("c", "d").add("a", "b"),
      Identity().add("", ""),
      Identity(),
      Identity().add("ab", ""),
      Identity().add("", "ab"),
      Identity().add(std::string_view("a\0b", 3), "c"),
  };
  std::set<std::string> texts;
  for (const Identity& identity : alike) CHECK(texts.insert(identity.canonical()).second);
}

TEST_CASE("an identity can be read back from its canonical text") {
  for (const Identity& identity :
       {sample_identity(), Identity(), Identity().add("", "").add("a\n=", "1 1 b=c\n")}) {
    const auto read = Identity::from_canonical(identity.canonical());
    REQUIRE(read.has_value());
    CHECK(*read == identity);
  }
}

TEST_CASE("the canonical text has the documented form") {
  CHECK(Identity().add("dtype", "bf16").add("batch", "").canonical() == "5 4 dtype=bf16\n5 0 batch=\n");
}

TEST_CASE("a text that canonical() does not write is not an identity") {
  for (const std::string_view text :
       {"1", "1 ", "1 1", "1 1 a=b", "1 1 a b\n", "01 1 a=b\n", "1 2 a=b\n", "2 1 a=b\n", "1 1  a=b\n",
        "-1 1 a=b\n", "+1 1 a=b\n", "1 1 a=b\nx", "1 18446744073709551615 a=b\n",
        "18446744073709551615 1 a=b\n", "99999999999999999999999 1 a=b\n", "\n", " "}) {
    CAPTURE(text);
    CHECK_FALSE(Identity::from_canonical(text).has_value());
  }
}
