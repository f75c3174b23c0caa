#!/bin/sh
# Runs a command of the product; or what Spark asks of a container on Kubernetes: an executor, or,
# under the operator, a driver. What Spark wants is in the environment that it sets.
set -eu

# Hadoop inside Spark does not start for a user without a name, and prints a stack for a group
# without one; a cluster may pick any of both. The root filesystem is read-only, so the names come
# from files in /tmp, by libnss-wrapper.
name_the_user() {
  uid=$(id -u)
  gid=$(id -g)
  if getent passwd "$uid" > /dev/null && getent group "$gid" > /dev/null; then
    return
  fi
  NSS_WRAPPER_PASSWD="${TMPDIR:-/tmp}/passwd"
  NSS_WRAPPER_GROUP="${TMPDIR:-/tmp}/group"
  getent passwd "$uid" > /dev/null || user="relay:x:$uid:$gid::/tmp:/usr/sbin/nologin"
  getent group "$gid" > /dev/null || group="relay:x:$gid:"
  { cat /etc/passwd; echo "${user:-}"; } > "$NSS_WRAPPER_PASSWD"
  { cat /etc/group; echo "${group:-}"; } > "$NSS_WRAPPER_GROUP"
  export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD NSS_WRAPPER_GROUP
}

spark_home() {
  python -c 'import pyspark; print(pyspark.__path__[0])'
}

name_the_user
case "${1:-}" in
  executor)
    home=$(spark_home)
    # One JVM option in each SPARK_JAVA_OPT_n; options hold no spaces or quotes of their own here.
    options=$(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')
    # shellcheck disable=SC2086
    exec tini -- java $options \
      "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
      -cp "${SPARK_CONF_DIR:-$home/conf}:$home/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  driver)
    shift
    exec tini -- "$(spark_home)/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
  *)
    exec tini -- "$@"
    ;;
esac
