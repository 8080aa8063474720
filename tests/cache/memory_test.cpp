#include "cache/memory.h"

#include <doctest/doctest.h>

#include "scratch_folder.h"

using sparsekiln::cache::Memory;

TEST_CASE("memory gives back what was put, until it is forgotten") {
  Memory memory;
  CHECK_FALSE(memory.get(sample_identity()).has_value());
  memory.put(sample_identity(), payload_of(10, 1));
  memory.put(sample_identity(), payload_of(20, 2));
  CHECK(memory.get(sample_identity()) == payload_of(20, 2));
  CHECK_FALSE(memory.get(sample_identity("65")).has_value());
  memory.forget(sample_identity());
  CHECK_FALSE(memory.get(sample_identity()).has_value());
}

TEST_CASE("memory drops the least recently used when it is full") {
  Memory memory(3500);
  memory.put(sample_identity("1"), payload_of(1000, 1));
  memory.put(sample_identity("2"), payload_of(1000, 2));
  memory.put(sample_identity("3"), payload_of(1000, 3));
  CHECK(memory.get(sample_identity("1")).has_value());
  memory.put(sample_identity("4"), payload_of(1000, 4));
  CHECK(memory.get(sample_identity("1")) == payload_of(1000, 1));
  CHECK_FALSE(memory.get(sample_identity("2")).has_value());
  CHECK(memory.get(sample_identity("3")) == payload_of(1000, 3));
  CHECK(memory.get(sample_identity("4")) == payload_of(1000, 4));
}

TEST_CASE("a payload that alone exceeds the limit is not kept, and displaces nothing") {
  Memory memory(2000);
  memory.put(sample_identity("1"), payload_of(1000, 1));
  memory.put(sample_identity("2"), payload_of(2000, 2));
  CHECK(memory.get(sample_identity("1")).has_value());
  CHECK_FALSE(memory.get(sample_identity("2")).has_value());
  // The old payload must not answer for the new one.
  memory.put(sample_identity("1"), payload_of(2000, 3));
  CHECK_FALSE(memory.get(sample_identity("1")).has_value());
}
