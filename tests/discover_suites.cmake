# Writes the add_test lines of a test binary, when it has been built: a process a suite, since starting libtorch takes
# longer than most cases. In: BINARY; OUTPUT; PREFIX, of the names; ENVIRONMENT; SUITES, a regular expression of those to
# take; SINGLY, one of those with a process a case.

execute_process(COMMAND ${BINARY} --gtest_list_tests OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY TIMEOUT 60)
string(REGEX REPLACE " *#[^\n]*" "" listing "${listing}")  # the values of parameters
string(REGEX MATCHALL "[^\n]+" lines "${listing}")

set(script "")
function(add name filter)
  # GoogleTest lists the skipped cases after the passed ones and before the failed ones. So output that ends with such a
  # line is of a suite that skipped cases and failed in none; CTest would call it skipped whatever the exit code is. Where
  # nothing can be run, the binary says so.
  string(APPEND script
    "add_test([[${PREFIX}${name}]] [[${BINARY}]] [[--gtest_filter=${filter}]])\n"
    "set_tests_properties([[${PREFIX}${name}]] PROPERTIES TIMEOUT 600 ENVIRONMENT [[${ENVIRONMENT}]]\n"
    "  SKIP_REGULAR_EXPRESSION [[\\[  SKIPPED \\] [A-Za-z0-9_/.]+\n*$;nothing was run: no CUDA device]])\n")
  set(script "${script}" PARENT_SCOPE)
endfunction()

foreach(line IN LISTS lines)
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.$")
    set(suite ${CMAKE_MATCH_1})
    set(taken OFF)
    set(singly OFF)
    if(suite MATCHES "${SUITES}")
      set(taken ON)
    endif()
    if(SINGLY AND suite MATCHES "${SINGLY}")
      set(singly ON)
    endif()
    if(taken AND NOT singly)
      add(${suite} ${suite}.*)
    endif()
  elseif(taken AND singly AND line MATCHES "^  ([A-Za-z0-9_/]+)$")
    add(${suite}.${CMAKE_MATCH_1} ${suite}.${CMAKE_MATCH_1})
  endif()
endforeach()
file(WRITE ${OUTPUT} "${script}")
