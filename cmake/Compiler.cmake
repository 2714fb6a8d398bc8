# Flags of every target, the compiler cache, sanitizers.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header is cacheable only if ccache may look past its time stamps and macros. Paths are relative to the
  # sources, so that another clone on the same machine finds what the first one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${CCACHE})
endif()

add_library(lowtide_flags INTERFACE)
# -fno-math-errno, -fno-trapping-math: let loops with rounding and comparison vectorise; no value changes.
# -ffp-contract=off: a product and a sum stay two roundings, so that results are those of the reference on any machine.
# -fPIC for programs too: they share the library's precompiled header, which must be compiled as they are.
target_compile_options(lowtide_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fPIC -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -fno-math-errno
                            -fno-trapping-math -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of impossible sizes inside std::string's own operator+ (its bugs 105329 and 105651).
  target_compile_options(lowtide_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess -Wno-restrict -Wno-stringop-overflow>)
endif()
if(LOWTIDE_WERROR)
  target_compile_options(lowtide_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(LOWTIDE_SANITIZE)
  target_compile_options(lowtide_flags INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(lowtide_flags INTERFACE -fsanitize=address,undefined)
endif()
if(LOWTIDE_FUZZ)
  target_compile_options(lowtide_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined)
  target_link_options(lowtide_flags INTERFACE -fsanitize=address,undefined)
endif()
