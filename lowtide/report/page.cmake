# The page, bundled from web/ into one C++ file, so that the program never needs Node. Without Node it says so when it
# is asked for the page.
find_program(NODE node)
set(web ${PROJECT_SOURCE_DIR}/web)
if(NODE AND EXISTS ${web}/node_modules/esbuild/package.json)
  set(LOWTIDE_PAGE ON PARENT_SCOPE)
  file(GLOB page_sources CONFIGURE_DEPENDS ${web}/src/*.ts ${web}/src/*.css ${web}/src/*.html)
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/page_html.cpp
                     COMMAND ${NODE} ${web}/build.mjs ${CMAKE_CURRENT_BINARY_DIR}/page_html.cpp
                     DEPENDS ${page_sources} ${web}/build.mjs ${web}/package-lock.json
                     COMMENT "Bundling the report's page" VERBATIM)
  # A library of its own: a target takes generated files from its own folder alone.
  add_library(lowtide_page STATIC ${CMAKE_CURRENT_BINARY_DIR}/page_html.cpp)
  target_link_libraries(lowtide_page PRIVATE $<BUILD_INTERFACE:lowtide_flags>)
  target_link_libraries(lowtide_core PRIVATE lowtide_page)
else()
  message(STATUS "Node or web/node_modules is missing: the program is built without the report's page")
  target_sources(lowtide_core PRIVATE page_missing.cpp)
endif()
