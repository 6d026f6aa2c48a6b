package otherlocks

// The programs of the pages import these packages, and no other file of the module does.
import (
	_ "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/hashicorp/consul/api"
	_ "github.com/jackc/pgx/v5"
	_ "github.com/leasekeeper/leasekeeper/backend/etcd"
	_ "github.com/leasekeeper/leasekeeper/backend/postgres"
	_ "github.com/leasekeeper/leasekeeper/backend/remote"
	_ "github.com/redis/go-redis/v9"
)
