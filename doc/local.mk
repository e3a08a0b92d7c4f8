# One man page for each program. The programs print them from their tables of options (starling-run:
# from its --help), so the build makes them; they are not shipped.
tool_programs = starling-plot starling-predict starling-report starling-tokenize starling-trace \
	starling-train starling-tune
trainer_names = gpt lenet lstm_lm mlp resnet
trainer_pages = $(trainer_names:%=doc/%.1)
tool_pages = $(tool_programs:%=doc/%.1)
man1_MANS = $(trainer_pages) $(tool_pages) doc/starling-run.1
CLEANFILES += $(man1_MANS) doc/starling.bash
print_page = $(AM_V_GEN)$(MKDIR_P) doc && \
	$(STANDIN_ENVIRONMENT) ./$< --help-man >$@.new && mv $@.new $@
help_to_pages = $(top_srcdir)/build-aux/help-to-pages

$(trainer_pages): doc/%.1: examples/%$(EXEEXT)
	$(print_page)
$(tool_pages): doc/%.1: tools/%$(EXEEXT)
	$(print_page)
doc/starling-run.1: tools/starling-run build-aux/help-to-pages
	$(AM_V_GEN)$(MKDIR_P) doc && $(top_srcdir)/tools/starling-run --help | \
	  $(help_to_pages) man starling-run "Starling $(VERSION)" >$@.new && mv $@.new $@
man: $(man1_MANS)

# One file completes all programs; bash finds it by each program's name.
bashcompletiondir = @bashcompletiondir@
completed_programs = $(trainer_names) $(tool_programs) starling-run
doc/starling.bash: tools/completion.bash build-aux/help-to-pages tools/starling-run \
	$(trainer_pages) $(tool_pages)
	$(AM_V_GEN)$(MKDIR_P) doc && { cat $(top_srcdir)/tools/completion.bash && \
	for p in $(trainer_names:%=examples/%) $(tool_programs:%=tools/%); do \
	  echo && $(STANDIN_ENVIRONMENT) ./$$p --help-completion || exit 1; \
	done && echo && $(top_srcdir)/tools/starling-run --help | \
	  $(help_to_pages) completion starling-run && \
	echo && echo "complete -F _starling $(completed_programs)"; } >$@.new && mv $@.new $@
all-local: doc/starling.bash
install-data-local: doc/starling.bash
	$(MKDIR_P) "$(DESTDIR)$(bashcompletiondir)"
	$(INSTALL_DATA) doc/starling.bash "$(DESTDIR)$(bashcompletiondir)/starling"
	for p in $(completed_programs); do \
	  ln -sf starling "$(DESTDIR)$(bashcompletiondir)/$$p" || exit 1; \
	done
# The pages, with the links between them, and the examples that pkg-config alone builds.
nobase_dist_doc_DATA = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE $(documents) \
	$(to_begin_from:=.c)
uninstall-documents:
	-rmdir "$(DESTDIR)$(docdir)/examples" "$(DESTDIR)$(docdir)/doc" "$(DESTDIR)$(docdir)"
uninstall-completion:
	for p in starling $(completed_programs); do rm -f "$(DESTDIR)$(bashcompletiondir)/$$p"; done
.PHONY: man uninstall-completion uninstall-documents

# ---- the pages: their commands, run; a site of them, of the manual pages and of the headers ------
EXTRA_DIST_DOC = \
	CHANGELOG.md \
	CONTRIBUTING.md \
	SECURITY.md \
	build-aux/check-docs \
	build-aux/draw-rooms \
	build-aux/make-site \
	build-aux/site-reference.css \
	build-aux/site.css

check-docs: all
	@if python3 -c '' 2>/dev/null; then \
	  STARPU_PREFIX=$(STARPU_PREFIX) $(top_srcdir)/build-aux/check-docs --build $(abs_top_builddir); \
	else echo "SKIP: check-docs: no python3 here"; fi

html-local: man
	@$(top_srcdir)/build-aux/make-site $(top_srcdir) $(abs_top_builddir)/html $(PACKAGE_VERSION)
install-html-local: html-local
	$(MKDIR_P) $(DESTDIR)$(htmldir)/html
	cp -R $(abs_top_builddir)/html/. $(DESTDIR)$(htmldir)/html
uninstall-local: uninstall-completion
	rm -rf $(DESTDIR)$(htmldir)/html
clean-docs:
	rm -rf $(abs_top_builddir)/html
.PHONY: check-docs clean-docs
