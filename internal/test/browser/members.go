package browser

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// cluster is three servers on this machine, as processes, with users.
type cluster struct {
	endpoints []string
	processes []*exec.Cmd
}

// The users of the cluster. The password of a user is its name.
const (
	rootUser     = "root"
	appUser      = "app"   // holds names
	operatorUser = "alice" // administers names
)

// startCluster builds the program, and starts a cluster with its data below a folder. The working directory is that of this
// package.
func startCluster(ctx context.Context, dir string) (*cluster, error) {
	program := filepath.Join(dir, "leasekeeper")
	if text, err := exec.CommandContext(ctx, "go", "build", "-C", "../../..", "-o", program, "./cmd/leasekeeper").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program: %w: %s", err, text)
	}
	addresses, err := freeAddresses(6)
	if err != nil {
		return nil, err
	}
	c := &cluster{endpoints: addresses[:3]}
	names := []string{"a", "b", "c"}
	var initial []string
	for i, name := range names {
		initial = append(initial, name+"="+addresses[3+i])
	}
	for i, name := range names {
		p := exec.CommandContext(ctx, program, "serve", "--name", name, "--initial-cluster", strings.Join(initial, ","), "--peer-listen", addresses[3+i],
			"--listen", addresses[i], "--http", "off", "--data-dir", filepath.Join(dir, name))
		p.Stderr = os.Stderr
		if err := p.Start(); err != nil {
			c.close()
			return nil, err
		}
		c.processes = append(c.processes, p)
	}
	if err := c.addUsers(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close ends the servers.
func (c *cluster) close() {
	for _, p := range c.processes {
		_ = p.Process.Signal(syscall.SIGKILL) // their data is not needed again
		_ = p.Wait()
	}
}

// freeAddresses returns addresses of this machine that nothing listens on.
func freeAddresses(n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // at the end, so that all differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// addUsers adds the users of the cluster.
func (c *cluster) addUsers(ctx context.Context) error {
	conn, err := grpc.NewClient(c.endpoints[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return enableAccess(ctx, conn, user{appUser, "", leasekeeperv1.NameRight_HOLD}, user{operatorUser, "", leasekeeperv1.NameRight_ADMINISTER})
}

// user may watch the names with a prefix, and has another right over them. Its password, and its only role, have its name.
type user struct {
	name, prefix string
	right        leasekeeperv1.NameRight
}

// enableAccess waits until a server has a leader, adds root and the users, and enables access.
func enableAccess(ctx context.Context, conn *grpc.ClientConn, users ...user) error {
	auth, names := pb.NewAuthClient(conn), leasekeeperv1.NewLeasekeeperClient(conn)
	for {
		_, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: rootUser, Password: rootUser}, grpc.WaitForReady(true))
		if err == nil {
			break
		}
		if sleep(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return err
		}
	}
	steps := []func() error{
		func() error { return grantRole(ctx, auth, rootUser, rootUser) },
	}
	for _, u := range users {
		steps = append(steps,
			func() error {
				_, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: u.name, Password: u.name})
				return err
			},
			func() error { _, err := auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: u.name}); return err },
			func() error {
				_, err := names.GrantRight(ctx, &leasekeeperv1.GrantRightRequest{Role: u.name, Prefix: u.prefix, Rights: []leasekeeperv1.NameRight{u.right, leasekeeperv1.NameRight_WATCH}})
				return err
			},
			func() error { return grantRole(ctx, auth, u.name, u.name) })
	}
	steps = append(steps, func() error { _, err := auth.AuthEnable(ctx, &pb.AuthEnableRequest{}); return err })
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d of the users: %w", i, err)
		}
	}
	return nil
}

func grantRole(ctx context.Context, auth pb.AuthClient, user, role string) error {
	_, err := auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: user, Role: role})
	return err
}
