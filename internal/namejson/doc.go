// Package namejson owns the JSON in which names, holders and tenures are shown to programs: by the commands and by the web
// console.
//
// Field names are part of the interface: a version may add some, but renames none. A field that the store does not tell is
// missing. The package formats nothing for people, and asks no store.
package namejson
