# SPDX-License-Identifier: BSD-3-Clause
# Sphinx: from Debian, strict about links and anchors, and its search needs no server. scripts/docs calls it.
project = "lockstep"
author = "the authors of lockstep"
html_title = "lockstep"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
pygments_style = "friendly"
nitpicky = True
# Listings of sh and text are not always whole programs.
suppress_warnings = ["misc.highlighting_failure"]
