package webconsole

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"sync"
)

//go:embed assets templates
var embedded embed.FS

// templates returns the templates of the pages by their kinds. The first call parses them: a command that serves no page
// does not parse them.
var templates = sync.OnceValue(func() map[string]*template.Template {
	return parseTemplates("overview", "names", "name", "holder", "store", "cluster", "audit", "foreign", "login", "message")
})

func parseTemplates(kinds ...string) map[string]*template.Template {
	all := make(map[string]*template.Template)
	base := template.Must(template.New("").Funcs(template.FuncMap{
		"text": textPlace, "anchor": anchorPlace, "lease": leasePlace, "path": pathPlace,
	}).ParseFS(embedded, "templates/layout.html", "templates/rows.html"))
	for _, kind := range kinds {
		all[kind] = template.Must(template.Must(base.Clone()).ParseFS(embedded, "templates/"+kind+".html"))
	}
	return all
}

// sheet is what the templates see of a page.
type sheet struct {
	Kind, Title string
	Cells       cells
	Body        any
	Store       string // for people
	Write       bool   // this browser may change names
	ReadOnly    string // why it may not, or ""
	User        string // who sees the page; "" without users
	Session     bool   // the user has logged in, and can log out
	Audit       bool   // the user may see the audit log
	Foreign     bool   // the store recognizes locks of other programs
	CSRF        string
	Updates     string // link to the updates of the page; "" if it has none
	JSON        string // link to the page for programs
	Server      bool   // the store is a server
}

// render writes a page as HTML.
func render(w io.Writer, s sheet) error {
	t, ok := templates()[s.Kind]
	if !ok {
		panic(fmt.Sprintf("webconsole: there is no template for the page %q", s.Kind))
	}
	return t.ExecuteTemplate(w, "layout", s)
}

// place is a cell and where it stands.
type place struct {
	Key   string
	Cell  cell
	Class string
}

// placeTemplates returns the templates that write the places of cells. The first call parses them. A template cannot use
// a function of its own set while it is parsed, so they are a set of their own.
var placeTemplates = sync.OnceValue(func() *template.Template { return template.Must(template.New("").Parse(placeText)) })

const placeText = `
{{define "text"}}<span data-k="{{.Key}}"{{with .Cell.Tone}} class="{{.}}"{{end}}>{{.Cell.Text}}</span>{{end}}
{{define "anchor"}}<a data-k="{{.Key}}"{{with .Cell.Tone}} class="{{.}}"{{end}}{{with .Cell.Link}} href="{{.}}"{{end}}>{{.Cell.Text}}</a>{{end}}
{{define "path"}}<path data-k="{{.Key}}" class="{{.Class}}" d="{{.Cell.Line}}"/>{{end}}
{{define "lease"}}<div class="lease" data-k="{{.Key}}"{{with .Cell.Bar}}{{if .Left}} data-left="{{.Left}}" data-whole="{{.Whole}}"{{end}}{{end}}><span{{with .Cell.Tone}} class="{{.}}"{{end}}>{{.Cell.Text}}</span><svg class="bar{{if not .Cell.Bar}} none{{end}}" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width="{{.Cell.Width}}" height="4"/></svg></div>{{end}}
`

func textPlace(c cells, key string) (template.HTML, error)   { return c.place("text", key, "") }
func anchorPlace(c cells, key string) (template.HTML, error) { return c.place("anchor", key, "") }
func leasePlace(c cells, key string) (template.HTML, error)  { return c.place("lease", key, "") }
func pathPlace(c cells, key, class string) (template.HTML, error) {
	return c.place("path", key, class)
}

// place returns the HTML of a cell. A template that names a cell that the page does not have is wrong.
func (c cells) place(kind, key, class string) (template.HTML, error) {
	one, ok := c[key]
	if !ok {
		return "", fmt.Errorf("the page has no cell %q", key)
	}
	var b bytes.Buffer
	if err := placeTemplates().ExecuteTemplate(&b, kind, place{key, one, class}); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil
}

// Width is the width of the bar, in hundredths of the whole.
func (c cell) Width() int64 {
	if c.Bar == nil || c.Bar.Whole <= 0 {
		return 0
	}
	return min(100, 100*c.Bar.Left/c.Bar.Whole)
}
