# What `make install` puts where: the program with manual pages and completions, the libraries with headers and a CMake
# package, recipes, documentation.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lowtide)
set(data ${CMAKE_INSTALL_DATADIR})
set(exported lowtide_core)
set_target_properties(lowtide_core PROPERTIES EXPORT_NAME core)
foreach(target lowtide_page lowtide_torch)
  if(TARGET ${target})
    list(APPEND exported ${target})
  endif()
endforeach()

install(TARGETS ${exported} EXPORT lowtide ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT lowtide NAMESPACE lowtide:: FILE lowtideTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/lowtideConfig.cmake.in ${PROJECT_BINARY_DIR}/lowtideConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lowtideConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lowtideConfig.cmake ${PROJECT_BINARY_DIR}/lowtideConfigVersion.cmake
              cmake/Findutf8proc.cmake cmake/FindWebP.cmake cmake/FindxxHash.cmake
        DESTINATION ${package})
install(DIRECTORY lowtide DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY recipes DESTINATION ${data}/lowtide)
install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET lowtide)
  set_target_properties(lowtide_torch PROPERTIES EXPORT_NAME torch)
  install(TARGETS lowtide RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${PROJECT_BINARY_DIR}/shell/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${PROJECT_BINARY_DIR}/shell/lowtide DESTINATION ${data}/bash-completion/completions)
  install(FILES ${PROJECT_BINARY_DIR}/shell/_lowtide DESTINATION ${data}/zsh/site-functions)
  install(FILES ${PROJECT_BINARY_DIR}/shell/lowtide.fish DESTINATION ${data}/fish/vendor_completions.d)
endif()
