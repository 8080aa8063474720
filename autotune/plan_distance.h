#pragma once

#include <sparsekiln/config.h>

namespace sparsekiln {

/// How far a plan is from another one, 0 where they are the same: for choosing, among plans that are there
/// already, the one most like the default plan. At every n that ends a range of either, their
/// configs are compared: a variant or an operand's place counts more than any number, numbers count by their
/// ratio (twice as many is as far as half as many), and the form of the tables counts least. The mean over
/// those n.
[[nodiscard]] double distance(const Plan& a, const Plan& b);

}  // namespace sparsekiln
