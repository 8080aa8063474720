#include "tools/command_line.h"

int main(int argc, char** argv) { return sparsekiln::tools::run_command_line(argc, argv); }
