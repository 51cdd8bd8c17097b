# Two headers, two libraries, the command, a CMake package and two pkg-config files.
include(CMakePackageConfigHelpers)

install(FILES include/tcpx/tcpx.h include/tcpx/tcpx.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tcpx)
install(TARGETS tcpx_p2p tcpx_p2p_static EXPORT tcpxTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tcpx)
  install(TARGETS tcpx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tcpx)
install(EXPORT tcpxTargets NAMESPACE tcpx:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tcpxConfig.cmake.in tcpxConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tcpxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tcpxConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tcpxConfigVersion.cmake
        DESTINATION ${package_dir})

# ${pcfiledir} keeps the files right when the tree is installed elsewhere or moved.
file(RELATIVE_PATH TCPX_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(pc tcpx tcpx-static)
  configure_file(cmake/${pc}.pc.in ${pc}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
