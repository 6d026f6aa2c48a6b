package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// layersPage holds the table of layers, under the heading layersHeading.
const (
	layersPage    = "docs/architecture.md"
	layersHeading = "## Layers"
)

// rootName is how the table calls the package in the root of the repository.
const rootName = "leasekeeper"

// layers is the table of layers. Rank counts the rows from the top: arrows point to higher ranks.
type layers struct {
	rank map[string]int // by folder
	name []string       // by rank
}

var tablePackage = regexp.MustCompile("`([^`]+)`")

// parseLayers reads the table of layers of a page, and finds the packages that stand in it twice.
func parseLayers(page string) (layers, []breach) {
	l := layers{rank: make(map[string]int)}
	var found []breach
	_, section, _ := strings.Cut(page, "\n"+layersHeading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !tablePackage.MatchString(cells[2]) {
			continue
		}
		for _, match := range tablePackage.FindAllStringSubmatch(cells[2], -1) {
			folder := match[1]
			if folder == rootName {
				folder = "."
			}
			if _, twice := l.rank[folder]; twice {
				found = append(found, breach{folder, "stands twice in the table " + layersHeading + " of " + layersPage + ": keep one place"})
			}
			l.rank[folder] = len(l.name)
		}
		l.name = append(l.name, strings.TrimSpace(cells[1]))
	}
	return l, found
}

// imported returns the folder of a package of this repository, and "" for another import.
func imported(p string) string {
	if p == modulePath {
		return "."
	}
	folder, ok := strings.CutPrefix(p, modulePath+"/")
	if !ok {
		return ""
	}
	return folder
}

// upward finds packages without a layer, layers of packages that do not exist, and imports that do not point to a lower
// layer. Tests may import anything.
func upward(t *tree, l layers) []breach {
	var found []breach
	folders := t.folders()
	for _, folder := range sortedKeys(folders) {
		if _, ok := l.rank[folder]; !ok {
			found = append(found, breach{folder, "has no layer: name it in the table " + layersHeading + " of " + layersPage + ", in a row above everything that it imports"})
		}
	}
	for _, folder := range sortedKeys(l.rank) {
		if len(folders[folder]) == 0 {
			found = append(found, breach{folder, "does not exist, but has a layer: remove it from the table " + layersHeading + " of " + layersPage})
		}
	}
	for _, f := range t.files {
		from, ok := l.rank[f.dir()]
		if f.isTest() || !ok {
			continue
		}
		for _, spec := range f.ast.Imports {
			folder := imported(importPath(spec))
			to, ok := l.rank[folder]
			if ok && to <= from {
				found = append(found, breach{t.at(spec), "imports " + folder + " of the layer \"" + l.name[to] + "\", which is not below \"" + l.name[from] +
					"\", the layer of " + f.dir() + ": move what it needs into a lower package, or take it as an argument or an interface" +
					" (if the table " + layersHeading + " of " + layersPage + " is wrong, correct it)"})
			}
		}
	}
	return found
}

func TestImportsPointToLowerLayers(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, layersPage))
	if err != nil {
		t.Fatal(err)
	}
	l, twice := parseLayers(string(page))
	if len(l.name) < 2 {
		t.Fatalf("%s has no table under %s", layersPage, layersHeading)
	}
	holds(t, twice)
	holds(t, upward(repository(t), l))
}

func TestImportsOfHigherLayersAreCaught(t *testing.T) {
	page := "# Page\n\n" + layersHeading + "\n\n| Layer | Packages |\n|---|---|\n| top | `leasekeeper`, `cmd/a` |\n| middle | `b`, `b/c` |\n| bottom | `d` |\n\n## Next\n\n| no layer | `e` |\n"
	l, twice := parseLayers(page)
	holds(t, twice)
	importing := func(folder, name, p string) *tree {
		pairs := []string{"x.go", "package x\n", "cmd/a/x.go", "package x\n", "b/x.go", "package x\n", "b/c/x.go", "package x\n", "d/x.go", "package x\n"}
		return example(t, append(pairs, folder+name, "package x\n\nimport _ \""+p+"\"\n")...)
	}
	for _, up := range []struct{ folder, p, what string }{
		{"d/", modulePath + "/b", `imports b of the layer "middle", which is not below "bottom"`},
		{"d/", modulePath, `imports . of the layer "top"`},
		{"d/", modulePath + "/b/c", "imports b/c"},
		{"b/", modulePath + "/b/c", `imports b/c of the layer "middle", which is not below "middle", the layer of b`},
		{"cmd/a/", modulePath, `not below "top"`},
	} {
		catches(t, upward(importing(up.folder, "y.go", up.p), l), up.folder+"y.go:3", up.what)
		holds(t, upward(importing(up.folder, "y_test.go", up.p), l))
	}
	for _, p := range []string{"os", "example.org/b", modulePath + "/d"} {
		holds(t, upward(importing("b/", "y.go", p), l))
	}
	holds(t, upward(importing("cmd/a/", "y.go", modulePath+"/d"), l))
	catches(t, upward(importing("e/", "y.go", "os"), l), "e", "has no layer")
	more, _ := parseLayers(strings.Replace(page, "`d`", "`d`, `gone`", 1))
	catches(t, upward(importing("b/", "y.go", "os"), more), "gone", "does not exist")
	_, twice = parseLayers(strings.Replace(page, "`d`", "`d`, `b`", 1))
	catches(t, twice, "b", "twice")
}
