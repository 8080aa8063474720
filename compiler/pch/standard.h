// What most files of the library include, precompiled: to read it is a third of what it takes to compile a
// file. Every file still includes what it needs itself: builds without precompiled headers (-Db_pch=false, as
// the fuzzers are built) have nothing else.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
