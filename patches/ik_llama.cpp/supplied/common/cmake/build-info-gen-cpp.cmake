# Supplied by numamirror-build. The commit has a script of this name and its .gitignore names it, so the source
# distributions of the binding lack it. Writes what the programs say of their commit and their compiler.

include("${CMAKE_CURRENT_SOURCE_DIR}/cmake/build-info.cmake")
configure_file("common/build-info.cpp.in" "common/build-info.cpp" @ONLY)
