// Package pages serves the web console of a server: the pages of package webconsole, for the users of the server.
//
// # What it promises
//
//   - A page shows a user only names over which the user has the right to watch, and the audit log only to root.
//   - A change is a request of the user, and passes the same checks as a request over gRPC. The console decides nothing.
//   - While access is not enabled, the pages change nothing. They are then served to those who reach the port for clients too.
//   - The token of a user stays in the server's memory. The browser has a cookie that stands for it.
//
// # How it works
//
// One connection in this process leads to the services of the server. The reader of the pages uses it on the server's own
// account, and shows each user a part of what it has read. A second client of the same connection makes changes and checks
// passwords, and carries the user's token and the address of the browser.
//
// # What it never does
//
// It keeps no rights and no passwords, and opens no port.
package pages
