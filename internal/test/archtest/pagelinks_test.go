package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageHeading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(page string) map[string]bool {
	all := make(map[string]bool)
	count := make(map[string]int)
	for _, match := range pageHeading.FindAllStringSubmatch(blank(page, codeFence), -1) {
		words := strings.ToLower(strings.TrimSpace(linkText.ReplaceAllString(match[1], "$1")))
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(words, ""), " ", "-")
		if n := count[anchor]; n > 0 {
			all[fmt.Sprintf("%s-%d", anchor, n)] = true
		} else {
			all[anchor] = true
		}
		count[anchor]++
	}
	return all
}

// brokenLinks finds links of pages to files or headings that do not exist. exists reports whether the repository has a
// file that is no page.
func brokenLinks(pages map[string]string, exists func(name string) bool) []breach {
	var found []breach
	for _, name := range sortedKeys(pages) {
		prose := blank(pages[name], codeFence, codeSpan)
		for _, at := range pageLink.FindAllStringSubmatchIndex(prose, -1) {
			link := prose[at[2]:at[3]]
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(link, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			where := fmt.Sprintf("%s:%d", name, 1+strings.Count(prose[:at[0]], "\n"))
			page, isPage := pages[target]
			switch {
			case !isPage && !exists(target):
				found = append(found, breach{where, "links to " + link + ", which does not exist"})
			case isPage && anchor != "" && !anchors(page)[anchor]:
				found = append(found, breach{where, "links to " + link + ", and there is no such heading"})
			}
		}
	}
	return found
}

func TestPagesHaveNoBrokenLinks(t *testing.T) {
	holds(t, brokenLinks(pages(t), func(name string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		return err == nil
	}))
}

func TestBrokenLinksOfPagesAreCaught(t *testing.T) {
	none := func(string) bool { return false }
	broken := func(link string) []breach {
		return brokenLinks(map[string]string{
			"a.md":      "# A\n\nSee [b](" + link + ").\n",
			"docs/b.md": "# B\n\n## It's `so`, isn't it?\n\n## Twice\n\n## Twice\n",
		}, none)
	}
	catches(t, broken("b.md"), "a.md:3", "does not exist")
	catches(t, broken("docs/c.json"), "a.md:3", "does not exist")
	catches(t, broken("docs/b.md#gone"), "a.md:3", "no such heading")
	catches(t, broken("#gone"), "a.md:3", "no such heading")
	for _, good := range []string{"docs/b.md", "docs/b.md#b", "docs/b.md#its-so-isnt-it", "docs/b.md#twice-1", "#a", "https://example.org/x"} {
		holds(t, broken(good))
	}
	holds(t, brokenLinks(map[string]string{"a.md": "`[b](gone.md)`\n\n```\n[b](gone.md)\n```\n"}, none))
}
