dist_man1_MANS = doc/lenet.1

# ---- the pages: their commands, run; a site of them, of the manual pages and of the public headers -----
EXTRA_DIST_DOC = CHANGELOG.md CONTRIBUTING.md SECURITY.md build-aux/check-docs build-aux/draw-rooms build-aux/make-site

check-docs: all
	@if python3 -c '' 2>/dev/null; then \
	  STARPU_PREFIX=$(STARPU_PREFIX) $(top_srcdir)/build-aux/check-docs --build $(abs_top_builddir); \
	else echo "SKIP: check-docs: no python3 here"; fi

html-local:
	@$(top_srcdir)/build-aux/make-site $(top_srcdir) $(abs_top_builddir)/html $(PACKAGE_VERSION)
install-html-local: html-local
	$(MKDIR_P) $(DESTDIR)$(htmldir)/html
	cp -R $(abs_top_builddir)/html/. $(DESTDIR)$(htmldir)/html
uninstall-local:
	rm -rf $(DESTDIR)$(htmldir)/html
clean-docs:
	rm -rf $(abs_top_builddir)/html
.PHONY: check-docs clean-docs
